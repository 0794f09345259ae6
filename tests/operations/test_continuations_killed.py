"""Workers of a retried run are killed with `kill -9`: nothing adopted runs again, and its undo is done once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stepkeep.engine import AsyncEngine
from tests.operations.continuing_process import shop

ROOT = Path(__file__).parents[2]
WORK = "import sys; from tests.operations.continuing_process import work; work(*sys.argv[1:])"


def killed(url: str, run_id: str) -> None:
    """A worker in a process of its own works on the run, and is killed."""
    command = [sys.executable, "-c", WORK, url, run_id]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.proof
async def test_a_retry_ends_although_its_workers_are_killed_and_undoes_what_it_adopted_once(
    database_url: str, tmp_path: Path
) -> None:
    def done() -> list[str]:
        return (tmp_path / "ledger").read_text().splitlines()

    async with AsyncEngine(database_url, actor="ann") as engine:
        (tmp_path / "broken").touch()
        first = (await engine.run(shop(), {"folder": str(tmp_path)})).run_id
        assert done() == [f"book {first}:book"]
        (tmp_path / "broken").unlink()
        second = (await engine.continuations.retry(first)).run_id
        (tmp_path / "kill-ship").touch()
        await asyncio.to_thread(killed, database_url, second)
        assert (await engine.work_on(second)).state == "blocked"
        assert done() == [f"book {first}:book", f"ship {second}:ship"]
        await engine.cancel(second, compensate=True)
        (tmp_path / "kill-unbook").touch()
        await asyncio.to_thread(killed, database_url, second)
        assert (await engine.work_on(second)).state == "rolled_back"
        assert done()[2:] == [f"unship {second}:ship:compensate", f"unbook {first}:book:compensate"]
        steps = (await engine.show(second))["steps"]
        tried = {step["name"]: [one["state"] for one in step["history"]] for step in steps}
        assert (tried["book"], tried["undo:ship"]) == ([], ["succeeded"])
        assert tried["ship"] == tried["undo:book"] == ["lost", "succeeded"]
        [row] = await engine.store.read_adoptions("default", [first])
        assert (row.run_id, row.source_step, row.owned) == (second, "book", 1)
        for run in (first, second):
            certificate = await engine.certify(run)
            assert certificate.ok, certificate.page()
