"""A worker process for tests that signal or kill it: `python serve_script.py URL DIRECTORY`."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from msgspec.structs import replace
from tests.worker.bed import QUICK, bed_on


async def main(url: str, directory: Path) -> None:
    async with bed_on(url) as bed:

        def slow(ctx) -> str:
            (directory / f"started-{ctx.attempt}").touch()
            while not (directory / "release").exists():
                time.sleep(0.01)
            return f"attempt {ctx.attempt}"

        async def endless(ctx) -> None:
            (directory / f"started-{ctx.attempt}").touch()
            await asyncio.sleep(600)

        bed.handler("slow", slow)
        bed.handler("endless", endless)
        await bed.worker(replace(QUICK, grace_seconds=1.0)).serve(signals=True)


asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
