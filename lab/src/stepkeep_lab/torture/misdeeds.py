"""Misbehaving handlers, each with the outcome that its attempt must have, in one table.

None of them harms another attempt if the worker does its part. Those that must harm others (breaking the event loop,
cancelling other tasks) have tests of their own. `misdeed_soak` runs them; processes find them here by name.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec

from stepkeep.kernel.machine.outcomes import Completed, Failed
from stepkeep.kernel.machine.states import Category
from stepkeep.worker.answers import StepError, fail, retry_in, wait_for

SECOND = 1_000_000

Mode = Literal["auto", "thread", "process"]


class Misdeed(msgspec.Struct, frozen=True, kw_only=True):
    """One handler. `category` None means that its run succeeds, with `output` if that is given; otherwise it fails with
    this category and an error that contains `says`. `weight` is how often it is drawn, relative to the others."""

    name: str
    function: Callable[..., Any]
    category: Category | None = None
    says: str = ""
    output: bytes | None = None
    mode: Mode = "auto"
    weight: float = 10.0
    timeout: int = 120 * SECOND
    transactional: bool = False

    def complaint(self, state: str, category: str | None, error: str | None, output: bytes | None) -> str | None:
        """What is wrong with the way in which a run of it ended; None when nothing is."""
        if self.category is None:
            right = state == "succeeded" and (self.output is None or self.output == output)
        else:
            right = state == "failed" and category == self.category and self.says in (error or "")
        return None if right else f"{self.name} ended {state} ({category}: {error!r}, output {output!r:.80})"


# -- honest work -------------------------------------------------------------------------------------------------------
async def honest_on_the_loop() -> dict[str, int]:
    return {"fine": 1}


def honest_in_a_thread() -> dict[str, int]:
    return {"fine": 2}


def honest_in_a_process() -> dict[str, int]:
    return {"fine": 3}


def honest_in_a_transaction(ctx: Any) -> dict[str, int]:
    return {"fine": 4}


# -- exceptions --------------------------------------------------------------------------------------------------------
class SaysNothing(Exception):
    def __str__(self) -> str:
        return str(self.args[7])


class SaysItsLike(Exception):
    def __str__(self) -> str:
        raise SaysItsLike


class LeavesInItsText(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class HasNoAttributes(Exception):
    def __getattribute__(self, name: str) -> Any:
        raise KeyboardInterrupt


class LiesAboutItsClass(Exception):
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return StepError


class OddHeaders(Exception):
    status = 503

    @property
    def headers(self) -> Any:
        raise GeneratorExit


async def unprintable_on_the_loop() -> None:
    raise SaysNothing("x")


def unprintable_in_a_thread() -> None:
    raise SaysNothing("x")


async def unprintable_twice() -> None:
    raise SaysItsLike


async def exits_in_its_text() -> None:
    raise LeavesInItsText


def unreadable() -> None:
    raise HasNoAttributes


async def lies() -> None:
    raise LiesAboutItsClass


async def odd_headers() -> None:
    raise OddHeaders


async def group() -> None:
    raise BaseExceptionGroup("several", [SaysNothing(), LeavesInItsText(), SystemExit(1)])


async def long_text() -> None:
    raise ValueError("x" * 1_000_000)


async def exits() -> None:
    sys.exit(4)


def exits_in_a_thread() -> None:
    raise SystemExit(4)


async def interrupts() -> None:
    raise KeyboardInterrupt


async def ends_its_generator() -> None:
    raise GeneratorExit


async def raises_cancellation() -> None:
    raise asyncio.CancelledError


async def cancels_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(1)


def recurses() -> int:
    return recurses() + 1


def closes_twice() -> None:
    descriptor = os.open(os.devnull, os.O_RDONLY)
    os.close(descriptor)
    os.close(-1)


def kills_its_thread() -> None:
    me = ctypes.c_ulong(threading.get_ident())
    ctypes.pythonapi.PyThreadState_SetAsyncExc(me, ctypes.py_object(SystemExit))
    while True:
        time.sleep(0.001)


# -- results -----------------------------------------------------------------------------------------------------------
class HostileDump:
    def model_dump(self, mode: str) -> object:
        raise SystemExit(5)


class HostileEquality:
    def __eq__(self, other: object) -> bool:
        raise KeyboardInterrupt

    __hash__ = None  # type: ignore[assignment]


async def not_a_number() -> float:
    return float("nan")


async def cycle() -> object:
    found: list[object] = []
    found.append(found)
    return found


async def a_megabyte() -> str:
    return "x" * 1_000_000


async def deep() -> object:
    found: object = 1
    for _ in range(500):
        found = [found]
    return found


async def hostile_dump() -> object:
    return HostileDump()


async def hostile_equality() -> object:
    return HostileEquality()


async def half_a_surrogate() -> str:
    return "\ud800"


async def an_outcome() -> object:
    return Completed(output="text")  # type: ignore[arg-type]


async def a_failure() -> object:
    return Failed(category=5, error=5)  # type: ignore[arg-type]


# -- answers -----------------------------------------------------------------------------------------------------------
async def delays_in_words() -> None:
    raise StepError("x", delay="soon")  # type: ignore[arg-type]


async def delays_for_ever() -> None:
    raise StepError("x", delay=10**30)


async def delays_later() -> None:
    problem = StepError("spoilt")
    problem.delay = 1.5  # type: ignore[assignment]
    raise problem


async def retries_in_a_number() -> object:
    return retry_in(5)  # type: ignore[arg-type]


async def fails_with_a_number() -> object:
    return fail(5)  # type: ignore[arg-type]


async def waits_for_a_number() -> object:
    return wait_for(5)  # type: ignore[arg-type]


async def waits_for_nul() -> object:
    return wait_for("a\x00b")


async def emits_a_number(ctx: Any) -> None:
    ctx.emit(5)


async def emits_a_flood(ctx: Any) -> None:
    for _ in range(2_000):
        ctx.emit("drop")


async def costs_nothing_known(ctx: Any) -> None:
    ctx.cost(usd=1)
    ctx.cost(usd=float("nan"))


# -- the handlers' loop and threads ------------------------------------------------------------------------------------
async def stops_the_loop() -> int:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)
    return 1


async def exits_in_a_callback() -> int:
    asyncio.get_running_loop().call_soon(sys.exit, 5)
    await asyncio.sleep(0)
    return 1


async def exits_in_a_task() -> None:
    async def leave() -> None:
        raise SystemExit(6)

    await asyncio.create_task(leave())


async def blocks_a_little() -> int:
    time.sleep(0.02)  # noqa: ASYNC251 - the misdeed
    return 1


async def swallows_cancellation() -> int:
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        await asyncio.sleep(0.05)
    return 1


def outlives_its_timeout() -> int:
    time.sleep(1.5)
    return 1


def leaves_a_thread_behind() -> int:
    threading.Thread(target=time.sleep, args=(0.05,), daemon=True).start()
    return 1


# -- forks and processes -----------------------------------------------------------------------------------------------
def forks_in_a_thread() -> int:
    copy = os.fork()
    return -1 if copy == 0 else os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])


async def forks_on_the_loop() -> int:
    return forks_in_a_thread()


def forks_in_a_process() -> int:
    if os.fork() == 0:
        time.sleep(0.02)
        return -1
    return 1


def aborts() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.abort()


def leaves() -> None:
    os._exit(3)


def kills_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def closes_everything() -> None:
    os.closerange(3, 256)


def answers_for_others() -> int:
    from stepkeep.worker.pools.child import pack

    sent = pack(-1, Completed(output=b'"forged"'))
    for descriptor in Path("/proc/self/fd").iterdir():
        if descriptor.is_socket():
            os.write(int(descriptor.name), len(sent).to_bytes(4, "big") + sent)
    return 1


def spoils_its_transaction(ctx: Any) -> None:
    raise SaysNothing


_UNKNOWN, _WRONG, _TRANSIENT, _LATE = Category.UNKNOWN, Category.VALIDATION, Category.TRANSIENT, Category.TIMEOUT
_STORED = "cannot be stored"


def _does(function: Callable[..., Any], category: Category | None = None, says: str = "", **fields: Any) -> Misdeed:
    return Misdeed(name=function.__name__.replace("_", "-"), function=function, category=category, says=says, **fields)


HONEST: tuple[Misdeed, ...] = (
    _does(honest_on_the_loop, output=b'{"fine":1}', weight=250),
    _does(honest_in_a_thread, output=b'{"fine":2}', weight=60),
    _does(honest_in_a_process, output=b'{"fine":3}', weight=2, mode="process"),
    _does(honest_in_a_transaction, output=b'{"fine":4}', weight=1, transactional=True),
)

MISDEEDS: tuple[Misdeed, ...] = (
    _does(unprintable_on_the_loop, _UNKNOWN, "SaysNothing (its message cannot be read)"),
    _does(unprintable_in_a_thread, _UNKNOWN, "SaysNothing (its message cannot be read)"),
    _does(unprintable_twice, _UNKNOWN, "SaysItsLike (its message cannot be read)"),
    _does(exits_in_its_text, _UNKNOWN, "LeavesInItsText (its message cannot be read)"),
    _does(unreadable, _UNKNOWN, "HasNoAttributes"),
    _does(lies, _UNKNOWN, "LiesAboutItsClass"),
    _does(odd_headers, _TRANSIENT, "OddHeaders"),
    _does(group, _UNKNOWN, "BaseExceptionGroup: several (3 sub-exceptions)"),
    _does(long_text, _UNKNOWN, "ValueError: xxx", weight=2),
    _does(exits, _UNKNOWN, "SystemExit: 4"),
    _does(exits_in_a_thread, _UNKNOWN, "SystemExit: 4"),
    _does(interrupts, _UNKNOWN, "KeyboardInterrupt"),
    _does(ends_its_generator, _UNKNOWN, "GeneratorExit"),
    _does(raises_cancellation, _UNKNOWN, "the handler cancelled itself"),
    _does(cancels_itself, _UNKNOWN, "the handler cancelled itself"),
    _does(recurses, _UNKNOWN, "RecursionError: maximum recursion depth exceeded", weight=2),
    _does(closes_twice, _UNKNOWN, "OSError: [Errno 9]"),
    _does(kills_its_thread, _UNKNOWN, "SystemExit", weight=5),
    _does(not_a_number, _WRONG, _STORED),
    _does(cycle, _WRONG, _STORED),
    _does(a_megabyte, _WRONG, _STORED, weight=5),
    _does(deep, _WRONG, _STORED),
    _does(hostile_dump, _WRONG, f"{_STORED}: SystemExit: 5"),
    _does(hostile_equality, _WRONG, _STORED),
    _does(half_a_surrogate, _WRONG, _STORED),
    _does(an_outcome, _WRONG, "Completed is a record of the engine"),
    _does(a_failure, _WRONG, "Failed is a record of the engine"),
    _does(delays_in_words, _WRONG, "delay is a whole number of microseconds"),
    _does(delays_for_ever, _WRONG, "delay is out of bounds"),
    _does(delays_later, _UNKNOWN, "the delay of this StepError cannot be used"),
    _does(retries_in_a_number, _WRONG, "retry_in: delay"),
    _does(fails_with_a_number, _WRONG, "the error is a text or an exception"),
    _does(waits_for_a_number, _WRONG, "the name of the event must be text"),
    _does(waits_for_nul, _WRONG, "the name of the event"),
    _does(emits_a_number, _WRONG, "the name of an event to emit must be text"),
    _does(emits_a_flood, _WRONG, "at most 1000 events", weight=1),
    _does(costs_nothing_known, _WRONG, "the cost cannot be stored"),
    _does(stops_the_loop, output=b"1"),
    _does(exits_in_a_callback, output=b"1"),
    _does(exits_in_a_task, _UNKNOWN, "SystemExit: 6"),
    _does(blocks_a_little, output=b"1", weight=1),
    _does(swallows_cancellation, _LATE, "ran past its timeout", weight=1, timeout=SECOND // 5),
    _does(outlives_its_timeout, _LATE, "ran past its timeout", weight=1, timeout=SECOND // 5),
    _does(leaves_a_thread_behind, output=b"1", weight=2),
    _does(forks_in_a_thread, output=b"70", weight=0.5),
    _does(forks_on_the_loop, output=b"70", weight=0.5),
    _does(forks_in_a_process, output=b"1", weight=0.5, mode="process"),
    _does(aborts, _UNKNOWN, "killed:6", weight=0.2, mode="process"),
    _does(leaves, _UNKNOWN, "exited:3", weight=0.2, mode="process"),
    _does(kills_itself, _UNKNOWN, "killed:9", weight=0.2, mode="process"),
    _does(closes_everything, _UNKNOWN, "exited:", weight=0.2, mode="process"),
    _does(answers_for_others, output=b"1", weight=0.5, mode="process"),
    _does(spoils_its_transaction, _UNKNOWN, "SaysNothing", weight=1, transactional=True),
)
