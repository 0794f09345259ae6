"""What `decide` answers: new rows and the record of how they came about, or a refusal, or a wish to see more.

A decision is complete: whoever writes exactly these rows, in one transaction, has done all that the event demands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from stepkeep.errors import Refused
from stepkeep.kernel.journal import SealedEntry
from stepkeep.kernel.plan import Plan
from stepkeep.kernel.rows import Attempt, Message, OutboxEntry, Run, Step


class Snapshot(msgspec.Struct, frozen=True, gc=False):
    """What is known about one run: its row and plan, and as many of its steps, outputs and messages as were loaded.

    `steps` may be partial. `inbox` is None when it was not loaded. `whole` says that `steps` has every row of the
    run, `waiting` that every waiting step is among them. `outputs` maps step numbers to their JSON (None: it has
    none). `seen` has the ids of messages that are in the inbox already.
    """

    plan: Plan
    run: Run
    steps: Mapping[int, Step]
    whole: bool = False
    waiting: bool = False
    inbox: tuple[Message, ...] | None = None
    seen: frozenset[str] = frozenset()
    outputs: Mapping[int, bytes | None] = {}
    input: bytes | None = None


class Need(msgspec.Struct, frozen=True):
    """`decide` cannot answer from this snapshot: load these too and ask again."""

    steps: frozenset[int] = frozenset()
    whole: bool = False
    waiting: bool = False
    inbox: bool = False
    outputs: frozenset[int] = frozenset()
    input: bool = False


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """The event took effect, or had taken effect before (`repeated`). `record` tells what is now true of it."""

    record: Mapping[str, Any] = {}
    repeated: bool = False


Reply = Accepted | Refused
"""Refusals are values here and become exceptions where somebody waits for the answer."""


class Claimer(msgspec.Struct, frozen=True, gc=False):
    """A worker with room: steps that become ready by this decision may be claimed for it in the same breath.

    Of those, no more than `narrow_room` may come from `narrow` queues.
    """

    actor: str
    worker: int
    lease: int | None
    room: int
    queues: frozenset[int]
    narrow: frozenset[int] = frozenset()
    narrow_room: int = 0

    def having(self, claimed: Sequence[Step]) -> Claimer:
        """The same worker with these in its room."""
        narrow = sum(step.queue in self.narrow for step in claimed) if self.narrow else 0
        return replace(self, room=self.room - len(claimed), narrow_room=self.narrow_room - narrow)


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The rows to write, and one answer for each event asked about, in order.

    `was` is the journal sequence the rows were read at: the write asserts it. `changed` steps replace rows that
    exist, `added` ones are new. `entry` is None when every event was refused or changed nothing. `only_moves` promises
    that no column changes but those named in `HOT_OF_RUN` and `HOT_OF_STEP`, and that no attempt failed: a store need
    not write the rest.
    """

    was: int
    run: Run
    replies: tuple[Reply, ...]
    changed: tuple[Step, ...] = ()
    added: tuple[Step, ...] = ()
    claimed: tuple[Step, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    messages: tuple[Message, ...] = ()
    consumed: tuple[Message, ...] = ()
    outbox: tuple[OutboxEntry, ...] = ()
    entry: SealedEntry | None = None
    only_moves: bool = False
