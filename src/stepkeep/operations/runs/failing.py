"""The errors that stopped runs, grouped: by workflow, step, category and message without its numbers.

It reads the newest stopped runs of a window and decides nothing. `engine.errors` and the page of errors call it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated

from stepkeep.edges.safe_text import inert_line
from stepkeep.kernel.plan import Plan
from stepkeep.operations.answers import Answer, says
from stepkeep.operations.instants import instant
from stepkeep.operations.logs.retention import created_at, first_id_at
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.runs.statistics import read_plans, spans_of, step_name
from stepkeep.store.records import RecentFailure

MOST_FAILURES = 5_000
"""So many of the newest stopped runs are looked at."""
MOST_GROUPS = 200
MAX_MESSAGE = 300
SMALLEST_TERM = 4
"""A shorter part of a message finds too much."""
VARIES = re.compile(r"\b0x[0-9a-f]+|\b(?=[0-9a-f-]*\d)[0-9a-f]{8,}(?:-[0-9a-f]{4,})*\b|\d+(?:[.,:]\d+)*", re.IGNORECASE)
"""What differs between two errors of one kind: ids and numbers."""
CLASS = re.compile(r"^\w+: ")
"""The class of an exception: many errors have the same."""


class ErrorGroup(Answer, kw_only=True):
    """Runs that one error stopped. `spans` counts them over the window, by when they were created."""

    workflow: str | None
    step: Annotated[str | None, says("The step that failed first; null where the run itself was stopped.")]
    category: str | None
    message: Annotated[str, says("The first line of the error, with # in place of numbers and ids.")]
    term: Annotated[str, says("The longest part of the message without them, which finds the runs: `error=`.")]
    runs: int
    versions: list[int]
    first_at: str | None
    last_at: str | None
    newest_run: str
    spans: list[int]


class ErrorList(Answer, kw_only=True):
    """The errors that stopped runs, most runs first."""

    at: str | None
    since: str | None
    looked_at: int
    is_complete: Annotated[bool, says("False where older stopped runs of the window were not looked at.")]
    errors: list[ErrorGroup]


def kind_of(error: str) -> str:
    """The first line of an error without what differs from run to run.

    >>> kind_of("order 4711 has no customer 019b7e2c-5a10-7c3e-9d7b-2f6f0a4c81d5\\nTraceback")
    'order # has no customer #'
    """
    first = error.strip().partition("\n")[0]
    return inert_line(VARIES.sub("#", first))[:MAX_MESSAGE]


def term_of(message: str) -> str:
    """The longest part of a message that every error of its kind has.

    >>> term_of("order # has no customer #")
    'has no customer'
    """
    longest = max((part.strip() for part in message.split("#")), key=lambda part: len(CLASS.sub("", part)))
    return longest if len(longest) >= SMALLEST_TERM else ""


async def read_errors(transactor: Transactor, *, tenant: str, window: int, workflow: str | None) -> ErrorList:
    """The errors of one tenant within `window` (microseconds), perhaps of one workflow."""
    store = transactor.store
    now = await store.now()
    since = max(0, now - window)
    found = await store.read_failures(tenant, after=first_id_at(since), limit=MOST_FAILURES)
    plans = await read_plans(transactor, {one.definition_id for one in found})
    return ErrorList(
        at=instant(now),
        since=instant(since),
        looked_at=len(found),
        is_complete=len(found) < MOST_FAILURES,
        errors=grouped(found, plans, since, now, workflow),
    )


def grouped(
    found: Sequence[RecentFailure], plans: Mapping[int, Plan], since: int, now: int, workflow: str | None = None
) -> list[ErrorGroup]:
    """Failures of one workflow, step, category and kind of message belong together."""
    groups: dict[tuple[str | None, str | None, str | None, str], list[RecentFailure]] = {}
    for one in found:
        plan = plans.get(one.definition_id)
        name = None if plan is None else plan.definition.name
        if workflow in (None, name):
            groups.setdefault((name, _step(plan, one), one.category, kind_of(one.error)), []).append(one)
    told = [
        ErrorGroup(
            workflow=name,
            step=step,
            category=category,
            message=message,
            term=term_of(message),
            runs=len(those),
            versions=sorted(
                {plans[one.definition_id].definition.version for one in those if one.definition_id in plans}
            ),
            first_at=instant(min(map(_at, those))),
            last_at=instant(max(map(_at, those))),
            newest_run=those[0].run_id,
            spans=spans_of((created_at(one.run_id) for one in those), since, now),
        )
        for (name, step, category, message), those in groups.items()
    ]
    return sorted(told, key=lambda one: (-one.runs, one.newest_run))[:MOST_GROUPS]


def _step(plan: Plan | None, one: RecentFailure) -> str | None:
    """A call of a flow has the name that the flow gave it."""
    if one.no is None:
        return None
    owner = f"step {one.no}" if plan is None else step_name(plan, one.no)
    return owner if one.call is None else f"{owner}: {one.call}"


def _at(one: RecentFailure) -> int:
    return one.ended_at or created_at(one.run_id)
