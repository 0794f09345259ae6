"""Reads the calls of a flow that are on record, with their results: all of them, or in pages for a remote worker.

All pages of one reading show the same moment: a call that ended after the first page was read is shown as open.
Otherwise a worker could be given a later end without an earlier one, and a replay takes ends in their order.
`JournaledCalls` tells the planned steps of a run from its journal. It changes nothing. `worker/inputs` and
`remote_work` call it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from stepkeep.kernel.decide.draft import HOP_BITS
from stepkeep.kernel.machine.journal import Cause, Hop
from stepkeep.kernel.machine.rows import Called, Step
from stepkeep.kernel.machine.states import STEP_TERMINAL, StepState
from stepkeep.kernel.machine.tables import StepTrigger
from stepkeep.kernel.plan import Plan, PlannedStep
from stepkeep.operations.pipeline.payloads import Payloads
from stepkeep.store.change import RunKey
from stepkeep.store.protocol import Store

if TYPE_CHECKING:
    from stepkeep.operations.pipeline.transact import Claim

PAGE_CALLS = 2_000
PAGE_BYTES = 1024 * 1024
"""A page ends with the call whose result goes beyond this."""
READ_AT_ONCE = 50
"""How many results are read together, before the size of a page is known."""

READ_ENTRIES = 1_000

Value = Callable[[RunKey, bytes], Awaitable[bytes]]


class RecordedCall(NamedTuple):
    """A call, when it ended among the calls of its run (None: it has not), its result, and the moment of its end."""

    row: Step
    settled: int | None
    output: bytes | None
    at: int | None


class CallPage(NamedTuple):
    """Calls in the order of their places. `until` is the moment that all pages show, `following` the place of the next
    call; None after the last."""

    calls: list[RecordedCall]
    until: int
    following: int | None


class CallReader:
    """The recorded calls of flows in one store."""

    def __init__(self, store: Store, payloads: Payloads) -> None:
        self._store, self._payloads = store, payloads

    async def read(self, claim: Claim) -> list[RecordedCall]:
        """All calls of a claimed flow."""
        rows = await self._rows(claim)
        outputs = await self._outputs(claim, rows, self._value)
        times = await self._times(claim, rows)
        return [RecordedCall(row, _settled(row), outputs.get(row.no), times.get(row.no)) for row in rows]

    async def page(self, claim: Claim, start: int, until: int | None, value: Value) -> CallPage:
        """The calls from this place on, as far as they fit, as they were at the moment `until` (None: now). `value`
        gives the payload that stands for a stored one."""
        rows = await self._rows(claim)
        if until is None:
            until = max((row.settled or 0 for row in rows), default=0)
        found: list[RecordedCall] = []
        size, end = 0, min(len(rows), start + PAGE_CALLS)
        times = await self._times(claim, rows[start:end])
        for first in range(start, end, READ_AT_ONCE):
            some = rows[first : min(first + READ_AT_ONCE, end)]
            ended = {row.no: settled for row in some if (settled := _settled(row)) is not None and settled <= until}
            outputs = await self._outputs(claim, [row for row in some if row.no in ended], value)
            for row in some:
                output = outputs.get(row.no)
                settled = ended.get(row.no)
                found.append(RecordedCall(row, settled, output, None if settled is None else times.get(row.no)))
                size += len(output or b"")
                if size > PAGE_BYTES:
                    return _page(found, until, start, len(rows))
        return _page(found, until, start, len(rows))

    async def _rows(self, claim: Claim) -> list[Step]:
        segment = claim.planned.segment
        assert segment is not None
        numbers = range(segment.first, segment.first + segment.width)
        return [row for row in await self._store.read_steps(claim.tenant, claim.run_id) if row.no in numbers]

    async def _outputs(self, claim: Claim, rows: Sequence[Step], value: Value) -> dict[int, bytes | None]:
        key = (claim.tenant, claim.run_id)
        wants = [(*key, row.no) for row in rows if row.state is StepState.SUCCEEDED]
        found = await self._store.read_outputs(wants) if wants else {}
        return {no: None if output is None else await value(key, output) for (_, _, no), output in found.items()}

    async def _times(self, claim: Claim, rows: Sequence[Step]) -> dict[int, int]:
        """When the calls that have ended did, by their numbers: the moments of their entries in the journal."""
        ended = {row.no: settled >> HOP_BITS for row in rows if (settled := _settled(row)) is not None}
        moments: dict[int, int] = {}
        after, last = min(ended.values(), default=0) - 1, max(ended.values(), default=-1)
        while after < last:
            entries = await self._store.read_journal(claim.tenant, claim.run_id, after, READ_ENTRIES)
            moments.update((entry.seq, entry.at) for entry in entries)
            after = entries[-1].seq if entries else last
        return {no: moments[seq] for no, seq in ended.items() if seq in moments}

    async def _value(self, key: RunKey, payload: bytes) -> bytes:
        return await self._payloads.value(*key, payload)


def _settled(row: Step) -> int | None:
    return row.settled if row.state in STEP_TERMINAL else None


def _page(found: list[RecordedCall], until: int, start: int, count: int) -> CallPage:
    following = start + len(found)
    return CallPage(found, until, following if found and following < count else None)


ADOPTING = (StepTrigger.ADOPTED, StepTrigger.ADOPTED_SKIPPED)
_encode = msgspec.json.Encoder(order="sorted").encode


class JournaledCalls:
    """The planned steps of one run, with the calls of its journal so far."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._calls: dict[int, PlannedStep] = {}

    def consume(self, hop: Hop, cause: Cause) -> None:
        """Learn what a flow calls, or what a handler adds, if this hop plans the first of it."""
        if hop.trigger in ADOPTING:
            self._adopt(hop, cause)
        if hop.trigger != StepTrigger.PLANNED or not self._plan.is_element(hop.no) or hop.no in self._calls:
            return
        place = self._plan.at(hop.no)
        assert place.owner is not None
        owner = self._plan.steps[place.owner]
        if owner.segment is None or place.index is None or not owner.kind.grows_by_report:
            return
        for index, told in enumerate(calls_in(cause.detail, owner.name), place.index):
            call = Called(
                kind=told["kind"],
                name=told["name"],
                digest=told["arguments"],
                arguments="null",
                step=_encode(told["step"]).decode(),
            )
            for no in (owner.segment.element(index), owner.segment.undo(index)):
                found = self._plan.called(no, call)
                if found is not None:
                    self._calls[no] = found

    def _adopt(self, hop: Hop, cause: Cause) -> None:
        """Learn what an adopted call is, which the creation of the run tells."""
        name = self._plan.name_of(hop.no)
        taken = ((cause.detail or {}).get("continues") or {}).get("adopted", ())
        told = next((one["call"] for one in taken if one["step"] == name and "call" in one), None)
        if told is not None and self._plan.is_element(hop.no):
            call = Called(kind="", name=told["name"], digest="", arguments="null", step=_encode(told["step"]).decode())
            for no in (hop.no, self._plan.undo_no(hop.no)):
                if (found := self._plan.called(no, call)) is not None:
                    self._calls[no] = found

    def know(self, rows: Iterable[Step]) -> None:
        """Take over the calls of rows, where the journal before them is not told."""
        for row in rows:
            planned = self._plan.of(row)
            if planned.call is not None and planned.owner is not None:
                self._calls[row.no] = planned
                if (undo := self._plan.undo_for(row)) is not None:
                    self._calls[undo.no] = undo

    def at(self, no: int) -> PlannedStep:
        """What this step is."""
        return self._calls.get(no) or self._plan.at(no)


def calls_in(detail: Mapping[str, Any] | None, owner: str) -> list[Mapping[str, Any]]:
    """The calls that the detail of a cause tells of."""
    told = {} if detail is None else detail.get("plan_grown", {}).get(owner, {})
    return list(told.get("calls", ()))
