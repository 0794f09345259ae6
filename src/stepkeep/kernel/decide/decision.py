"""The results of `decide`: new rows with the hops that led to them, or a refusal, or a request for more rows.

A decision is complete: writing exactly these rows in one transaction does everything that the event requires.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.decide.policy import Policy
from stepkeep.kernel.errors import InvalidInput, Refused
from stepkeep.kernel.machine.journal import SealedEntry
from stepkeep.kernel.machine.rows import Attempt, Details, Message, Origin, Rows, Run, Step
from stepkeep.kernel.people.authority import Authority, Caller
from stepkeep.kernel.plan import Plan

K = TypeVar("K", bound=Hashable)

MOST_REQUESTERS = 100
"""How many people may have asked for a run and for those that led to it."""


class Involved(msgspec.Struct, frozen=True, gc=False):
    """The people behind a run: those who asked for it or caused it, and by step number the owners of the workers that
    executed it."""

    requesters: frozenset[str]
    executors: Mapping[int, frozenset[str]] = {}


def asked_names(asked_before: bytes | None) -> tuple[str, ...]:
    """The names in `asked_before` of a run's details."""
    return () if asked_before is None else tuple(msgspec.json.decode(asked_before, type=list[str]))


def requesters_of(details: Details, *others: str) -> bytes:
    """Everyone who caused a run, and these others: `asked_before` of a run that comes of it. That run keeps the names,
    because retention may delete this one."""
    return asked_json({details.created_by, *asked_names(details.asked_before), *others})


def asked_json(names: Iterable[str]) -> bytes:
    """Names as `asked_before` of a run's details."""
    return msgspec.json.encode(sorted(set(names)))


def check_requesters(run_id: str, asked_before: bytes | None) -> None:
    """Refuse a run with more requesters than a record has room for: none of them may be left out."""
    if (count := len(asked_names(asked_before))) > MOST_REQUESTERS:
        said = f"{count} people asked for run {run_id} or for the runs that led to it; at most {MOST_REQUESTERS} may"
        raise InvalidInput(
            f"{said}, because each of them is kept out of its approvals. Start a run of its own instead."
        )


def involved_in(
    runs: Iterable[K], requests: Iterable[tuple[K, str, bytes | None]], executions: Iterable[tuple[K, int, str]]
) -> dict[K, Involved]:
    """The people behind each of these runs: from its requester and those of the runs that it repeats (JSON), and from
    the executors of steps."""
    requesters: dict[K, set[str]] = {run: set() for run in runs}
    executors: dict[K, dict[int, frozenset[str]]] = {run: {} for run in requesters}
    for run, person, before in requests:
        requesters[run] |= {person, *asked_names(before)}
    for run, no, person in executions:
        executors[run][no] = executors[run].get(no, frozenset()) | {person}
    return {run: Involved(frozenset(names), executors[run]) for run, names in requesters.items()}


class Bound(msgspec.Struct, frozen=True, gc=False):
    """The budget of a run above a child, and what the tree of that run has spent as far as it is on record."""

    run_id: str
    limits: Mapping[str, float]
    costs: tuple[bytes | None, ...] = ()


class Snapshot(msgspec.Struct, frozen=True, gc=False):
    """What is known about one run: its row and plan, and the steps, outputs and messages that were loaded.

    `steps` may be partial. `inbox` is None if it was not loaded. `whole` means that `steps` has every row of the run,
    `waiting` that every waiting step is among them. `outputs` maps step numbers to their JSON (None: no output). `seen`
    has the ids of messages that are in the inbox already. `recorded` has the fences of the checkpoints that events
    name, by step number and name. `authorities` has what the actors of events bring. `involved` is
    None if it was not loaded. `policy` is the live policy of the tenant. `origin` and `input` are loaded together.
    `costs` has one entry for each ended attempt: what it reported, or None.
    """

    plan: Plan
    run: Run
    steps: Mapping[int, Step]
    whole: bool = False
    waiting: bool = False
    inbox: tuple[Message, ...] | None = None
    seen: frozenset[str] = frozenset()
    recorded: Mapping[tuple[int, str], int] = {}
    outputs: Mapping[int, bytes | None] = {}
    input: bytes | None = None
    authorities: Mapping[Caller, Authority] = {}
    involved: Involved | None = None
    policy: Policy | None = None
    origin: Origin | None = None
    costs: tuple[bytes | None, ...] | None = None
    kept: Mapping[int, int] = {}
    """The deadlines of open steps that a new run takes over from the one that it was migrated from."""
    spend: Mapping[str, Mapping[str, float]] = {}
    """What was spent of each shared budget of the live policy, as this process has read it last."""
    above: tuple[Bound, ...] | None = ()
    """The budgets of the runs above a child that stop it; None if they were not loaded."""


class Need(msgspec.Struct, frozen=True):
    """`decide` needs more than this snapshot: load these rows too and call it again."""

    steps: frozenset[int] = frozenset()
    whole: bool = False
    waiting: bool = False
    inbox: bool = False
    outputs: frozenset[int] = frozenset()
    input: bool = False
    people: frozenset[Caller] = frozenset()
    duties: bool = False
    costs: bool = False
    above: bool = False


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """The event took effect, or had taken effect before (`repeated`). `record` holds its result."""

    record: Mapping[str, Any] = {}
    repeated: bool = False


Reply = Accepted | Refused
"""Refusals are values here. They become exceptions in the call that submitted the event."""


class Claimer(msgspec.Struct, frozen=True, gc=False):
    """A worker with free slots: steps that become ready by this decision may be claimed for it in the same transaction.

    At most `blocking_slots` of them may come from `blocking` queues. `owner` is that of the worker's key.
    """

    actor: str
    worker: int
    lease: int | None
    slots: int
    queues: frozenset[int]
    blocking: frozenset[int] = frozenset()
    blocking_slots: int = 0
    owner: str | None = None

    def having(self, claimed: Sequence[Step]) -> Claimer:
        """The same worker with these steps in its slots."""
        blocking = sum(step.queue in self.blocking for step in claimed) if self.blocking else 0
        return replace(self, slots=self.slots - len(claimed), blocking_slots=self.blocking_slots - blocking)


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The rows to write, and one reply for each event, in order.

    `was` is the journal sequence of the rows that were read; the write asserts it. `changed` steps replace existing
    rows, `added` ones are new. `entry` is None if every event was refused or changed nothing. `only_hot` promises
    that only columns named in `HOT_OF_RUN` and `HOT_OF_STEP` change, and that no attempt failed: a store need not write
    the rest.
    """

    was: int
    run: Run
    replies: tuple[Reply, ...]
    changed: tuple[Step, ...] = ()
    added: tuple[Step, ...] = ()
    claimed: tuple[Step, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    rows: Rows = msgspec.field(default_factory=Rows)
    """All other rows: what most decisions do not have."""
    entry: SealedEntry | None = None
    only_hot: bool = False
