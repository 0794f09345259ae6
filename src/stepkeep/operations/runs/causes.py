"""Causes of a standstill as values, and the words they share. Pure; `explain` and `staffing` make them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec

from stepkeep.operations.answers import Answer, says
from stepkeep.operations.people.step_people import StepPeople

SECOND = 1_000_000
NAMED = 3


class Why(StrEnum):
    """Where a chain of causes ends. The order is the order of attention."""

    STUCK = "stuck"
    LATE_TIMER = "late_timer"
    QUARANTINED = "quarantined"
    NO_WORKER = "no_worker"
    NO_HANDLER = "no_handler"
    NO_VERSION = "no_version"
    MISFIT = "misfit"
    FORBIDDEN = "forbidden"
    NO_CAPABILITY = "no_capability"
    NO_SECRET = "no_secret"  # noqa: S105 - a word
    NO_QUEUE = "no_queue"
    ONLY_RUN = "only_run"
    DUTY = "duty"
    DEAD_WORKER = "dead_worker"
    FULL = "full"
    DATABASE = "database"
    NOBODY = "nobody"
    NOT_STARTED = "not_started"
    PAUSED = "paused"
    SLOT = "slot"
    RESOURCE = "resource"
    LIMIT = "limit"
    APPROVAL = "approval"
    DECISION = "decision"
    COMPLETION = "completion"
    EVENT = "event"
    OTHER = "other"
    SCHEDULED = "scheduled"
    CHILDREN = "children"
    SLEEP = "sleep"
    RETRY = "retry"
    STOPPING = "stopping"
    RUNNING = "running"
    SOON = "soon"
    DRAINING = "draining"
    SERVES = "serves"
    EMPTY = "empty"
    DEPENDENCY = "dependency"
    FINISHED = "finished"


FAULTS = frozenset(list(Why)[: list(Why).index(Why.NOT_STARTED)])
"""Causes that neither a person's decision nor time alone will end."""

ATTENTION = {why: place for place, why in enumerate(Why)}


class PausedBy(Answer, kw_only=True):
    """The pause that holds something back, and that has to end first."""

    scope: Literal["run", "queue", "tenant"]
    queue: Annotated[str | None, says("Of a queue: its name; the default queue is empty.")] = None


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One link of the chain. `command` has the words behind `stepkeep`; without one, nothing needs to be done.
    `asked` has the people, where the link is a wait for people; `pause` has the pause, where the link is one."""

    code: Why
    subject: str
    sentence: str
    since: int | None = None
    until: int | None = None
    command: tuple[str, ...] = ()
    asked: StepPeople | None = None
    pause: PausedBy | None = None


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why something does not move. `causes` is ordered by attention, except for the chain of one step. `course` says
    which run a run continues, and which runs continue it."""

    subject: str
    state: str
    causes: tuple[Cause, ...]
    course: Mapping[str, Any] | None = None

    @property
    def is_stuck(self) -> bool:
        return any(cause.code is Why.STUCK for cause in self.causes)


def unreachable(what: str, problem: str) -> Explanation:
    """The database does not answer, so nothing moves and nothing can be read."""
    said = f"The database does not answer: {problem}. Nothing moves until it does; then workers go on by themselves."
    cause = Cause(code=Why.DATABASE, subject="the database", sentence=said, command=("db", "status"))
    return Explanation(subject=what, state="unknown", causes=(cause,))


def queue_words(name: str) -> str:
    """A named queue in words; the default one has no name."""
    return f"queue {name}" if name else "the default queue"


def listed(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more:,} more" if more > 0 else "")


def span(micros: int) -> str:
    """A length of time in two units at most.

    >>> span(2_300_000), span(83_000_000), span(7_325_000_000), span(-5)
    ('2s', '1m 23s', '2h 2m', '0s')
    """
    seconds = max(0, micros) // SECOND
    for large, small, size, rest in (("d", "h", 86_400, 3_600), ("h", "m", 3_600, 60), ("m", "s", 60, 1)):
        if seconds >= size:
            return f"{seconds // size}{large} {seconds % size // rest}{small}".removesuffix(f" 0{small}")
    return f"{seconds}s"


def until(now: int, due: int | None) -> str:
    if due is None:
        return "without a deadline"
    return f"in {span(due - now)}" if due > now else "now"


def by(now: int, due: int | None) -> str:
    return "" if due is None else f", which ends {until(now, due)}"
