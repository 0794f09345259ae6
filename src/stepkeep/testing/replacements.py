"""Replacements of handlers: a value, a failure, a few failures and then a value, a wait, no answer.

A replacement is called once per attempt and records every call. Its script is counted per step and run, so that two
runs of one test do not share their failures; that of a handler which a flow calls, over all its calls in a run. It has
no clock and touches no database.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import msgspec

from stepkeep.definition.bounds import DEADLINE
from stepkeep.definition.python.registry import HandlerSpec, read_signature
from stepkeep.definition.python.retry import Duration, microseconds
from stepkeep.kernel.definition import Agent
from stepkeep.kernel.errors import InvalidInput
from stepkeep.worker.answers import StepError, wait_for
from stepkeep.worker.attempts.executor import Job
from stepkeep.worker.executors.python import check_fit

TAKES = (0, DEADLINE[1])
ALWAYS = 10_000


class Silence(Enum):
    """How an attempt may end without an answer of its handler."""

    TIMES_OUT = "times out"
    LOSES_WORKER = "loses its worker"


TIMES_OUT = Silence.TIMES_OUT
"""In a script: the attempt runs past its timeout."""
LOSES_WORKER = Silence.LOSES_WORKER
"""In a script: the worker dies with the attempt, and its lease expires."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt that reached a replacement."""

    run_id: str
    step: str
    attempt: int
    inputs: Any
    undoing: bool = False


class Replacement:
    """Stands in for a handler, an agent or a step. Made by `Workbench.replace`."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Any] | None = None,
        *,
        returns: Any = None,
        raises: BaseException | type[BaseException] | str | None = None,
        fails_times: int | None = None,
        times_out: int | bool = 0,
        loses_worker: int | bool = 0,
        waits_for: str | None = None,
        wait_timeout: Duration | None = None,
        takes: Duration | None = None,
        script: Sequence[Any] = (),
    ) -> None:
        if function is not None and returns is not None:
            raise InvalidInput(f"{name}: give a function or `returns`, not both.")
        self.name = name
        self.calls: list[Call] = []
        self.takes = 0 if takes is None else microseconds(takes, what=f"{name}: takes", bounds=TAKES)
        self._function, self._returns = function, returns
        self._failure = None if raises is None and fails_times is None else _failure(raises)
        self._always = self._failure is not None and fails_times is None
        self._script: list[Any] = [
            *script,
            *[TIMES_OUT] * (ALWAYS if times_out is True else int(times_out)),
            *[LOSES_WORKER] * (ALWAYS if loses_worker is True else int(loses_worker)),
            *[self._failure] * (fails_times or 0),
            *([wait_for(waits_for, timeout=wait_timeout)] if waits_for is not None else []),
        ]
        self._asked: dict[tuple[str, str, bool], int] = defaultdict(int)

    @property
    def called(self) -> int:
        """How many attempts came here."""
        return len(self.calls)

    def answer(self, job: Job, known: HandlerSpec | None) -> Any:
        """The result of this attempt: a value, a wait or retry, a Silence, or an exception that is raised."""
        context, inputs = job.make_context(), job.prepared.render(job)
        if known is not None and not isinstance(job.claim.planned.executor, Agent):
            check_fit(known, inputs)
        # A flow calls a handler anew by each call: its script goes on over all of them.
        step = context.step if job.claim.planned.call is None else ""
        here = (context.run_id, step, context.undoing)
        place, self._asked[here] = self._asked[here], self._asked[here] + 1
        self.calls.append(
            Call(
                run_id=context.run_id,
                step=context.step,
                attempt=context.attempt,
                inputs=inputs,
                undoing=context.undoing,
            )
        )
        said = self._script[place] if place < len(self._script) else self._failure if self._always else None
        if isinstance(said, type) and issubclass(said, BaseException):
            said = said()
        if isinstance(said, BaseException):
            raise said
        if said is not None or place < len(self._script):
            return said
        if self._function is None:
            return self._returns
        args, kwargs = read_signature(self._function).arguments(context, inputs)
        return self._function(*args, **kwargs)


def _failure(raises: BaseException | type[BaseException] | str | None) -> BaseException | type[BaseException]:
    if raises is None or isinstance(raises, str):
        return StepError(raises or "it failed, as the test wanted", category="transient")
    return raises
