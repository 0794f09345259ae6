"""Writes what was planned for a trigger: its row, its firings and the runs that they start, in one transaction.

Whichever process comes second finds another sequence number at the trigger's row and writes nothing. A run that cannot
be started is on record as a refused firing; it does not hold up the trigger. `sweep`, `events` and `manage` call it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.decide.decision import asked_json
from stepkeep.kernel.errors import ExpressionError, Refused, StepkeepError, StoreError
from stepkeep.kernel.machine.rows import rows_of
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.triggers import TriggerSpec
from stepkeep.operations.definitions.publish import find_plan
from stepkeep.operations.instants import instant
from stepkeep.operations.people import people
from stepkeep.operations.pipeline.start import StartBatch, Started, Starter, StartRequest
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.triggers.inputs import input_of
from stepkeep.operations.triggers.plan import Fire, Planned, skipped
from stepkeep.store.change import Basis, Loaded, More, Want, Write
from stepkeep.store.rows import (
    Backfill,
    Firing,
    FiringState,
    TriggerChange,
    TriggerKey,
    TriggerRow,
)

OPERATION = "trigger"
"""The operation of idempotency keys of firings: no key of a caller can meet one."""

MAX_REASON = 500

_decode_spec = msgspec.json.Decoder(TriggerSpec).decode
_encode_spec = msgspec.json.Encoder(order="sorted").encode

log = logging.getLogger(__name__)


def spec_of(row: TriggerRow) -> TriggerSpec:
    return _decode_spec(row.spec)


def encode_spec(spec: TriggerSpec) -> bytes:
    return _encode_spec(spec)


class OutsideEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that may fire triggers. `run` is the run that it comes from; `asked` has everyone who caused it;
    None: that is not known any more."""

    id: str
    name: str
    payload: Any
    at: int
    run: str | None = None
    correlation_id: str | None = None
    facts: dict[str, Any] = {}
    asked: tuple[str, ...] | None = ()

    def shown(self) -> Mapping[str, object]:
        """What expressions read."""
        plain = {"id": self.id, "name": self.name, "time": instant(self.at), "run": self.run}
        return {**plain, "correlation_id": self.correlation_id, **self.facts, "payload": self.payload}


class Caused(msgspec.Struct, frozen=True, kw_only=True):
    """What caused a firing, for its input and its record: the event, and the person of one by hand."""

    event: Mapping[str, Any] | None = None
    caller: Caller | None = None


class KeptInput(msgspec.Struct, frozen=True):
    """What a firing that waits keeps for its run. `asked` has everyone who caused its event or its ending."""

    input: msgspec.Raw
    correlation_id: str | None = None
    asked: tuple[str, ...] = ()


_decode_kept = msgspec.json.Decoder(KeptInput).decode


class FiringBatch:
    """One transaction about one trigger. `is_stale` tells that another process came first: nothing was written."""

    def __init__(self, key: TriggerKey, was: int, planned: Planned, fires: list[Firing], starts: StartBatch) -> None:
        self.basis = Basis.LOCKED
        self.is_stale = False
        self.firings: tuple[Firing, ...] = ()
        self.started = 0
        self.backfill = planned.backfill
        self._key, self._was, self._planned, self._fires, self._starts = key, was, planned, fires, starts
        self._looked: Loaded | None = None

    def wants(self) -> list[Want]:
        return []

    def is_certain(self) -> bool:
        return False

    def decide(self, loaded: Loaded) -> More | Write:
        if self._looked is not loaded:
            self._looked = loaded
            return More(triggers=(self._key,))
        row = loaded.triggers.get(self._key)
        self.is_stale = (0 if row is None else row.seq) != self._was
        if self.is_stale:
            return Write()
        answer = self._starts.decide(loaded)
        if isinstance(answer, More):
            return answer
        done = [_done(firing, reply) for firing, reply in zip(self._fires, self._starts.answers, strict=True)]
        self.firings = (*self._planned.records, *done)
        self.started = sum(one.state is FiringState.STARTED for one in done)
        self.backfill = _counted(self._planned.backfill, done)
        answer.rows.add(TriggerChange(was=self._was, row=self._planned.row))
        answer.rows.take(rows_of(self.firings))
        if self.backfill is not None:
            answer.rows.add(self.backfill)
        return answer


def _done(firing: Firing, reply: Started | Exception | None) -> Firing:
    if isinstance(reply, Started):
        return replace(firing, state=FiringState.STARTED, run_id=reply.run_id, given=None, reason=None)
    said = str(reply) if isinstance(reply, StepkeepError) else f"the run cannot be started: {type(reply).__name__}"
    return skipped(firing, said[:MAX_REASON], FiringState.REFUSED)


def _counted(job: Backfill | None, done: list[Firing]) -> Backfill | None:
    if job is None:
        return None
    mine = [one for one in done if one.backfill == job.id]
    started = sum(one.state is FiringState.STARTED for one in mine)
    return replace(job, started=job.started + started, refused=job.refused + len(mine) - started)


class Firer:
    """Fires triggers: prepares the starts of a plan, and writes all of it. One per process."""

    def __init__(self, transactor: Transactor, starter: Starter | None = None) -> None:
        self.transactor, self._starter = transactor, starter or Starter(transactor)

    async def carry_out(
        self, before: TriggerRow | None, planned: Planned, causes: Callable[[Firing], Caused] = lambda firing: Caused()
    ) -> FiringBatch | None:
        """Carry out a plan that rests on this row; None if another process has changed the trigger."""
        row = planned.row
        fires: list[Firing] = []
        requests: list[StartRequest] = []
        refused: list[Firing] = []
        for fire in planned.starts:
            try:
                requests.append(await self._request(row, fire, causes(fire.firing), planned.backfill))
                fires.append(fire.firing)
            except (Refused, ExpressionError) as problem:
                refused.append(skipped(fire.firing, str(problem)[:MAX_REASON], FiringState.REFUSED))
        job = planned.backfill
        if job is not None:
            job = replace(job, refused=job.refused + sum(one.backfill == job.id for one in refused))
        complete = replace(planned, records=(*planned.records, *refused), backfill=job)

        def make() -> FiringBatch:
            batch = self._starter.batch(requests)
            return FiringBatch((row.tenant, row.name), 0 if before is None else before.seq, complete, fires, batch)

        done = await self.transactor.run(make, None)
        return None if done.is_stale else done

    async def cancel(self, planned: Planned) -> bool:
        """Cancel the runs that a plan replaces. Returns whether there were any: their states must be read again."""
        for run_id in planned.cancels:
            await self._cancel(planned.row, run_id)
        return bool(planned.cancels)

    async def _request(self, row: TriggerRow, fire: Fire, caused: Caused, job: Backfill | None) -> StartRequest:
        plan = await find_plan(self.transactor, row.workflow, row.version, tenant=row.tenant)
        firing = fire.firing
        if firing.given is None:
            kept = KeptInput(msgspec.Raw(input_of(row, spec_of(row), firing.moment, caused.event)))
        else:
            kept = await self._opened(firing.given)
        # The persons of the event, of the trigger (who added it by hand or published it) and of the backfill.
        asked = {*kept.asked, row.created_by}
        asked |= {job.created_by} if job is not None and firing.backfill == job.id else set()
        request = StartRequest(
            plan=plan,
            names_version=row.version is not None,
            caller=caused.caller or Caller(row.tenant, actor_of(row.name)),
            input=bytes(kept.input),
            operation=OPERATION,
            idempotency_key=f"{row.name}:{firing.moment}",
            correlation_id=kept.correlation_id,
            start_delay=fire.delay or None,
            asked_before=asked_json(asked),
        )
        return await self._starter.reduced(request)

    async def kept(self, row: TriggerRow, given: bytes, event: OutsideEvent) -> bytes:
        """An input that is kept until its run can start, sealed where payloads are. The person of the trigger that made
        it is kept as well: the trigger may be another one's by then."""
        kept = KeptInput(msgspec.Raw(given), event.correlation_id, (*(event.asked or ()), row.created_by))
        plain, seal = _encode_spec(kept), self.transactor.payloads.seal
        return await asyncio.to_thread(seal.seal, plain) if seal.is_on else plain

    async def _opened(self, given: bytes) -> KeptInput:
        return _decode_kept(await asyncio.to_thread(self.transactor.payloads.seal.opened, given))

    async def _cancel(self, row: TriggerRow, run_id: str) -> None:
        """Cancel a run that a later firing replaces; one that has ended meanwhile is left alone."""
        try:
            await people.cancel(
                self.transactor,
                run_id,
                caller=Caller(row.tenant, actor_of(row.name)),
                reason=f"a later firing of the trigger {row.name} replaces it",
            )
        except StoreError:
            raise
        except StepkeepError as problem:
            log.info("run %s is not cancelled for the trigger %s: %s", run_id, row.name, problem)


def actor_of(name: str) -> str:
    """The actor on record for what a trigger does."""
    return f"trigger:{name}"
