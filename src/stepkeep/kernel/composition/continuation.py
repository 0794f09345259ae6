"""How a new run goes on with an earlier one: the finished steps and calls that it takes, as its creation records them.

Plain values, and their form in the journal. `adoption` and `kept_calls` choose what is taken, `create` adds the rows,
operations carry it between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Required, TypedDict

import msgspec

from stepkeep.kernel.machine.journal import payload_digest
from stepkeep.kernel.machine.rows import Adopted, Checkpoint, Grown, Note
from stepkeep.kernel.machine.states import Category
from stepkeep.kernel.people.persons import persons_detail
from stepkeep.kernel.plan import Plan


class ContinuationKind(StrEnum):
    """How a new run goes on with an earlier one."""

    RETRY = "retry"
    """After a fix: what did not finish runs again, and the new run is responsible for the undo of the rest."""
    RERUN = "rerun"
    """From a named step: it and everything after it runs again."""
    FORK = "fork"
    """Another course from a named step, with another input if one is given."""
    ROLLBACK = "rollback"
    """Nothing goes on: the steps of a finished child are undone, because its parent rolls back."""
    MIGRATE = "migrate"
    """Under another version: a live run ends, and this one goes on in its place."""

    @property
    def owns_undo(self) -> bool:
        """Whether the new run is responsible for the undo of what it adopts."""
        return self in (ContinuationKind.RETRY, ContinuationKind.MIGRATE, ContinuationKind.ROLLBACK)


class AdoptedCall(TypedDict):
    """The template of an adopted call of a flow, or of an adopted added step."""

    name: str
    step: Any


class AdoptedRecord(TypedDict, total=False):
    """An adopted step in the journal. `undo`: the new run is responsible for its undo."""

    step: Required[str]
    run: Required[str]
    fence: Required[int]
    its_step: str
    digest: str
    persons: Mapping[str, object]
    remains: str
    call: AdoptedCall
    undo: bool


class KeyRecord(TypedDict):
    """A call of the earlier run that runs again, and the run whose idempotency key the same call keeps."""

    place: int
    kind: str
    name: str
    arguments: str
    run: str


class BegunFlow(TypedDict, total=False):
    """A flow that the earlier run began: keys that its next calls keep, and the digests of its checkpoints."""

    keys: list[KeyRecord]
    checkpoints: dict[str, str | None]


ContinuationRecord = TypedDict(
    "ContinuationRecord",
    {
        "run": Required[str],
        "as": Required[str],
        "from": str,
        "adopted": list[AdoptedRecord],
        "began_at": int,
        "deadlines": dict[str, int],
        "flows": dict[str, BegunFlow],
    },
    total=False,
)
"""A continuation in the journal of the new run."""


class Continuation(msgspec.Struct, frozen=True, kw_only=True):
    """The finished steps that a new run takes: their notes by step number of the new plan.

    A migrated run also takes over time: `began_at` is when its work began, from which its timeout counts, and
    `deadlines` are the moments at which its open waits and gates end. `costs` is what its work has cost so far.
    `flows` are the flows that the earlier run began, with their `checkpoints`, and `failures` the failures of adopted
    calls, which their flow is given again; all by step number.
    """

    how: ContinuationKind
    run_id: str
    start: str | None = None
    notes: Mapping[int, Note] = {}
    began_at: int | None = None
    deadlines: Mapping[int, int] = {}
    costs: tuple[bytes | None, ...] = ()
    flows: Mapping[int, Grown] = {}
    checkpoints: Mapping[int, tuple[Checkpoint, ...]] = {}
    failures: Mapping[int, tuple[Category, str]] = {}

    def to_detail(self, plan: Plan) -> ContinuationRecord:
        """What the journal says about it, the adopted steps in the order of their completion."""
        said: ContinuationRecord = {"run": self.run_id, "as": str(self.how)}
        if self.start is not None:
            said["from"] = self.start
        said["adopted"] = [
            _adopted_step_detail(plan.at(no).name, reference, note) for no, note, reference in self.in_order()
        ]
        if self.began_at is not None:
            said["began_at"] = self.began_at
        if self.deadlines:
            said["deadlines"] = {plan.at(no).name: moment for no, moment in sorted(self.deadlines.items())}
        details = {plan.at(no).name: self._begun_detail(no, grown) for no, grown in sorted(self.flows.items())}
        if begun := {name: told for name, told in details.items() if told}:
            said["flows"] = begun
        return said

    def note_of(self, no: int) -> Note | None:
        """The note with which the row of a step begins that is not adopted."""
        grown = self.flows.get(no)
        return None if grown is None else Note(grown=grown)

    def _begun_detail(self, no: int, grown: Grown) -> BegunFlow:
        told: BegunFlow = {}
        if grown.kept:
            told["keys"] = [
                {"place": one.place, "kind": one.kind, "name": one.name, "arguments": one.digest, "run": one.run}
                for one in grown.kept
            ]
        if checkpoints := self.checkpoints.get(no):
            told["checkpoints"] = {one.name: payload_digest(one.value) for one in checkpoints}
        return told

    def in_order(self) -> list[tuple[int, Note, Adopted]]:
        """Number, note and reference of each adopted step, in the order of their completion."""
        taken = [(no, note, note.adopted) for no, note in self.notes.items() if note.adopted is not None]
        return sorted(taken, key=lambda one: one[2].place)


def _adopted_step_detail(name: str, reference: Adopted, note: Note) -> AdoptedRecord:
    said: AdoptedRecord = {"step": name, "run": reference.run, "fence": reference.fence}
    if reference.step != name:
        said["its_step"] = reference.step
    if reference.digest is not None:
        said["digest"] = reference.digest
    if persons := persons_detail(note.persons):
        said["persons"] = persons
    if reference.remains is not None:
        said["remains"] = reference.remains
    if note.call is not None:
        # The definition does not know a call of a flow or an added step: the judge of its undo needs the template.
        said["call"] = {"name": note.call.name, "step": msgspec.json.decode(note.call.step)}
    said["undo"] = reference.owned
    return said
