"""Handlers that run in processes of their own; a process finds them here by name."""

from __future__ import annotations

import datetime
import os
import signal
import subprocess
import time
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from stepkeep.worker.answers import StepError, wait_for


def double(n: int) -> dict[str, int]:
    return {"twice": 2 * n, "pid": os.getpid()}


def about(ctx, **inputs):
    ctx.cost(tokens=3)
    ctx.emit("seen", inputs)
    return [ctx.run_id, ctx.step, ctx.attempt, ctx.idempotency_key, ctx.input]


def die_by_signal() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leave() -> None:
    os._exit(3)


def complain() -> None:
    raise StepError("not allowed", category="auth")


def wait() -> object:
    return wait_for("paid", timeout="1h")


def eat_memory() -> int:
    return len(bytearray(4 * 1024**3))


def never_end(marker: str) -> None:
    helper = subprocess.Popen(["sleep", "600"])
    Path(marker).write_text(f"{os.getpid()} {helper.pid}")
    while True:
        time.sleep(60)


def wait_for_cancel(ctx, marker: str) -> None:
    Path(marker).touch()
    ctx.cancelled.wait(30)
    ctx.check_cancelled()


def unsendable() -> object:
    return float("nan")


def exit_politely() -> None:
    raise SystemExit(4)


WHO: ContextVar[str] = ContextVar("who", default="nobody")


def swap_variable() -> str:
    found = WHO.get()
    WHO.set("an attempt")
    return found


def change_surroundings() -> dict[str, Any]:
    found = {
        "pid": os.getpid(),
        "directory": os.getcwd(),
        "variables": [os.environ.get("STEPKEEP_MARK"), os.environ.get("PATH")],
        "mask": os.umask(0o77),
    }
    os.environ["STEPKEEP_MARK"] = "set"
    os.environ["PATH"] = "/nowhere"
    os.chdir("/")
    return found


def fork_and_both_return() -> dict[str, str]:
    copy = os.fork() == 0
    if copy:
        # So that its answer would come while the next task of this process runs.
        time.sleep(0.1)
    return {"who": "copy" if copy else "original"}


def fork_and_hold_on(marker: str) -> None:
    copy = os.fork()
    if copy == 0:
        time.sleep(600)
    Path(marker).write_text(str(copy))
    os.kill(os.getpid(), signal.SIGKILL)


def double_slowly(n: int) -> dict[str, int]:
    time.sleep(0.3)
    return {"twice": 2 * n}


def answer_twice(n: int) -> dict[str, int]:
    # What no handler should do: find the line to the worker, and speak on it.
    from stepkeep.kernel.machine.outcomes import Completed
    from stepkeep.worker.pools.child import pack

    sent = pack(-1, Completed(output=b'{"twice":"forged"}'))
    for descriptor in Path("/proc/self/fd").iterdir():
        if descriptor.is_socket():
            os.write(int(descriptor.name), len(sent).to_bytes(4, "big") + sent)
    return {"twice": 2 * n}


def raise_unprintable() -> None:
    raise Unprintable


class Unprintable(Exception):
    def __str__(self) -> str:
        raise SystemExit(9)

    def __getattr__(self, name: str) -> object:
        raise KeyboardInterrupt


def abort() -> None:
    os.abort()


def close_everything() -> None:
    os.closerange(3, 64)


def return_an_outcome() -> object:
    from stepkeep.kernel.machine.outcomes import Completed

    return Completed(output="text")  # type: ignore[arg-type]


def weekday(day: datetime.date) -> int:
    return day.weekday()


def shared_pool(ctx) -> object:
    return ctx.shared["pool"]


def tell(ctx, marker: str) -> str:
    for page in range(1_000):
        ctx.progress(page / 1_000, f"page {page}")
    ctx.progress(0.5, "half")
    while not Path(marker).exists():
        time.sleep(0.01)
    return "told"
