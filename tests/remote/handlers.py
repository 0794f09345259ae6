"""Handlers of the processes in the tests of remote workers. They leave marks in a folder, and wait for files there."""

from __future__ import annotations

import os
import time
from pathlib import Path

import stepkeep as sk

MARKS = Path(os.environ.get("STEPKEEP_MARKS", "."))


def mark(name: str) -> None:
    with (MARKS / name).open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")


@sk.step("fleet.quick")
def quick(ctx: sk.Context) -> int:
    mark(f"{ctx.step}-{ctx.run_id}")
    return ctx.attempt


@sk.step("fleet.gated")
def gated(ctx: sk.Context) -> int:
    """Runs until the file `go` is there, or until its lease is lost."""
    mark(f"{ctx.step}-{ctx.run_id}")
    while not (MARKS / "go").exists() and not ctx.cancelled:
        time.sleep(0.02)
    return os.getpid()
