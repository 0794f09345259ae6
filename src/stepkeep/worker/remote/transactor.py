"""What a worker reads and writes, over HTTP: the part of a store and of a transactor that workers use.

The service decides and writes; here nothing is decided. A request whose answer was lost is sent again under the same
id, so that the service answers it again instead of doing it twice. Where that is impossible, leases protect.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import structs

from stepkeep.kernel import errors
from stepkeep.kernel.decide.decision import Accepted, Claimer
from stepkeep.kernel.definition import QueueSpec
from stepkeep.kernel.errors import Broken, Refused, StoreError, Unreadable
from stepkeep.kernel.machine.events import Event, StepCheckpointed, StepReported
from stepkeep.kernel.machine.fitting import outcome_bytes
from stepkeep.kernel.machine.outcomes import Released
from stepkeep.kernel.machine.rows import Called, Details, Note, Step, StreamPart
from stepkeep.network.service import CODES
from stepkeep.operations.people.network import NAME
from stepkeep.operations.pipeline.batch import Answer
from stepkeep.operations.pipeline.payloads import OutputKey, Payloads
from stepkeep.operations.pipeline.plans import PlanCache
from stepkeep.operations.pipeline.transact import Claim, Transactor
from stepkeep.operations.remote.asked_calls import CALL_BYTES, AskedCalls
from stepkeep.operations.remote.recorded_calls import CallReader, RecordedCall
from stepkeep.operations.remote.recorded_checkpoints import CheckpointPage, CheckpointReader, Place, Value
from stepkeep.operations.remote.remote_work import MOST_AT_ONCE
from stepkeep.operations.remote.work_messages import (
    ClaimedStep,
    Claims,
    Kept,
    Queues,
    ReachableNetwork,
    RecordedCalls,
    RecordedCheckpoints,
    Renewals,
    Replied,
    Replies,
    RunData,
    StoredOne,
    WorkCall,
    WorkRun,
    Written,
)
from stepkeep.operations.remote.work_outcomes import outcome_json
from stepkeep.operations.settings import SettingKind
from stepkeep.operations.streams.writing import LAST, E, StreamWriter
from stepkeep.store.change import Lease, Renewed, RunKey, StoredDefinition, StoredSetting
from stepkeep.store.protocol import Store
from stepkeep.store.records import FIRST_CHECKPOINT, Evidence
from stepkeep.store.streams import Holder
from stepkeep.worker.remote.channel import Channel
from stepkeep.worker.remote.notices import Notices
from stepkeep.worker.remote.requests import (
    LARGEST_RESULT,
    CallsRequest,
    CheckpointRequest,
    CheckpointsRequest,
    Claiming,
    ClaimRequest,
    EvidenceRequest,
    InputsRequest,
    OneEvidence,
    OneLease,
    OneReport,
    OneRun,
    RenewRequest,
    ReportRequest,
    StreamBody,
    StreamsRequest,
)

log = logging.getLogger("stepkeep.worker")

MOST_REPORTS = 500
TRIES = 3


class RemoteStore:
    """The part of a store that workers use."""

    clock_offset = 0
    parallel_commits = 2
    divides_batches = False

    def __init__(self, channel: Channel, tenant: str) -> None:
        self._channel, self._tenant = channel, tenant
        self.notifier = Notices(channel)

    async def list_queues(self, tenant: str) -> list[tuple[int, QueueSpec]]:
        told = await self._channel.ask(Queues, "GET", "/work/queues")
        return [(one.number, msgspec.convert(one, QueueSpec, from_attributes=True)) for one in told.queues]

    async def has_ready(self, queues: Collection[int]) -> bool:
        # A claim costs no more requests than this question.
        return True

    async def renew(self, leases: Sequence[Lease]) -> list[Renewed]:
        body = RenewRequest([OneLease(one.run_id, one.no, one.fence, one.lease) for one in leases])
        told = await self._channel.ask(Renewals, "POST", self._channel.path("renew"), body, tries=TRIES, seconds=10)
        return told.renewed

    async def read_details(self, keys: Sequence[RunKey]) -> dict[RunKey, Details]:
        found = await self._read([OneRun(run_id, details=True) for _, run_id in keys])
        return {(self._tenant, one.run_id): _details(one.details) for one in found if one.details}

    async def read_outputs(self, wants: Sequence[OutputKey]) -> dict[OutputKey, bytes | None]:
        by_run: dict[str, list[int]] = {}
        for _, run_id, no in wants:
            by_run.setdefault(run_id, []).append(no)
        found = await self._read([OneRun(run_id, outputs=tuple(numbers)) for run_id, numbers in by_run.items()])
        return {
            (self._tenant, one.run_id, each.no): None if each.absent else bytes(each.output)
            for one in found
            for each in one.outputs or ()
        }

    async def read_steps(self, tenant: str, run_id: str) -> list[Step]:
        found = await self._read([OneRun(run_id, states=True)])
        return msgspec.convert(found[0].steps, list[Step]) if found else []

    async def read_setting(
        self, tenant: str, kind: str, name: str, revision: int | None = None
    ) -> StoredSetting | None:
        if (kind, name) != (SettingKind.NETWORK, NAME):
            raise Broken(f"a remote worker reads no setting {kind} {name}")
        document = msgspec.json.encode((await self._channel.ask(ReachableNetwork, "GET", "/work/network")).allow)
        return StoredSetting(
            tenant=tenant, kind=kind, name=name, revision=1, document=document, saved_at=0, saved_by=""
        )

    async def add_evidence(self, evidence: Sequence[Evidence]) -> None:
        told = [OneEvidence(one.run_id, one.no, one.fence, cast(Any, msgspec.Raw(one.body))) for one in evidence]
        await self._channel.ask(Kept, "POST", self._channel.path("evidence"), EvidenceRequest(told), tries=TRIES)

    async def _read(self, runs: list[OneRun]) -> list[WorkRun]:
        return (await self._channel.ask(RunData, "POST", self._channel.path("inputs"), InputsRequest(runs))).runs


class RemoteCalls(CallReader):
    """The recorded calls of flows, in pages of the service."""

    def __init__(self, channel: Channel, tenant: str, payloads: Payloads) -> None:
        self._channel, self._tenant, self._opened = channel, tenant, payloads.seal.opened

    async def read(self, claim: Claim) -> list[RecordedCall]:
        found: list[RecordedCall] = []
        body = CallsRequest(claim.run_id, claim.step.no, claim.step.fence)
        while True:
            page = await self._channel.ask(RecordedCalls, "POST", self._channel.path("calls"), body, tries=TRIES)
            found += [self._recorded(claim, one) for one in page.calls]
            if page.following is None:
                return found
            body = msgspec.structs.replace(body, start=page.following, until=page.until)

    def _recorded(self, claim: Claim, one: WorkCall) -> RecordedCall:
        call = Called(kind=one.kind, name=one.name, digest=one.digest, arguments="null", step="{}")
        row = Step(
            tenant=self._tenant,
            run_id=claim.run_id,
            no=one.no,
            queue=0,
            fence=one.fence,
            state=one.state,
            category=one.get("category"),
            error=one.get("error"),
            note=Note(call=call),
        )
        output = one.get("output")
        given = None if output is None else self._opened(bytes(output))
        return RecordedCall(row, one.get("settled"), given, one.get("at"))


class RemoteStreams(StreamWriter):
    """Appends to streams at the service, which knows their bytes, their digests and what is sealed."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def append(self, holder: Holder, parts: Sequence[StreamPart]) -> None:
        told = [_stream(one.name, one.start, one.body, one.after) for one in parts]
        body = StreamsRequest(holder.run_id, holder.no, holder.fence, told)
        await self._channel.ask(Written, "POST", self._channel.path("streams"), body, tries=TRIES)

    async def completed(self, events: Sequence[E]) -> list[E]:
        return list(events)


def _stream(name: str, start: int, body: bytes | None, after: tuple[int, int] | None) -> StreamBody:
    place = None if after is None else "last" if after == LAST else f"{after[0]}.{after[1]}"
    chunks = [] if body is None else msgspec.json.decode(body, type=list[msgspec.Raw])
    return StreamBody(name=name, chunks=cast(Any, chunks), start=start, after=place)


class RemoteCheckpoints(CheckpointReader):
    """Checkpoints of earlier attempts, in pages of the service."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def page(self, claim: Claim, after: Place = FIRST_CHECKPOINT, value: Value | None = None) -> CheckpointPage:
        body = CheckpointsRequest(claim.run_id, claim.step.no, claim.step.fence, *after)
        told = await self._channel.ask(
            RecordedCheckpoints, "POST", self._channel.path("checkpoints"), body, tries=TRIES
        )
        following = None if told.following is None else (told.following.seq, told.following.name)
        return CheckpointPage({name: bytes(value) for name, value in told.checkpoints.items()}, following)


class RemotePayloads(Payloads):
    """Payloads as the service gives them: whole, and opened where the service can open them."""

    async def value(self, tenant: str, run_id: str, payload: bytes) -> bytes:
        return self.seal.opened(payload)

    async def detail(self, one: Details) -> Details:
        return msgspec.structs.replace(one, input=self.seal.opened(one.input))


class RemoteTransactor(Transactor):
    """Claims and reports over HTTP."""

    has_database = False

    def __init__(self, channel: Channel, tenant: str) -> None:
        self.remote = RemoteStore(channel, tenant)
        super().__init__(cast(Store, self.remote), PlanCache())
        self._channel, self._tenant = channel, tenant
        self.payloads = RemotePayloads(self.store)
        self.payloads.max_bytes = LARGEST_RESULT
        self.calls = RemoteCalls(channel, tenant, self.payloads)
        self.streams = RemoteStreams(channel)
        self.checkpoints = RemoteCheckpoints(channel)
        self._unanswered: ClaimRequest | None = None

    async def submit_all(self, events: Sequence[Event]) -> list[Answer]:
        """Report these outcomes. Timers are left to the service, which sweeps."""
        reports = [event for event in events if isinstance(event, StepReported)]
        replies = iter((await self.report(reports, None))[0]) if reports else iter(())
        return [next(replies) if isinstance(event, StepReported) else Accepted() for event in events]

    async def claim(
        self, claimer: Claimer, *, limit: int, after: int | None = None, run: RunKey | None = None
    ) -> list[Claim]:
        if limit <= 0 or not claimer.queues:
            return []
        surplus: list[Claim] = []
        if self._unanswered is not None:
            # What that request has claimed is ours: it is taken now, as far as there are slots.
            claims = await self._send_claim(self._unanswered)
            claims, surplus = claims[:limit], claims[limit:]
        else:
            claims = []
        if not claims and not surplus:
            body = ClaimRequest(
                **structs.asdict(_claiming(claimer, min(limit, claimer.slots))),
                request_id=secrets.token_hex(8),
                after=after,
                run_id=None if run is None else run[1],
            )
            claims = await self._send_claim(body)
        if surplus:
            await self._release(claimer, surplus, "it was claimed by a request whose answer was lost")
        return claims

    async def _send_claim(self, body: ClaimRequest) -> list[Claim]:
        self._unanswered = body
        try:
            told = await self._channel.ask(Claims, "POST", self._channel.path("claim"), body, tries=TRIES)
        except StoreError:
            raise
        except errors.StepkeepError:
            self._unanswered = None
            raise
        self._unanswered = None
        return await self._claims(told.claims)

    async def report(self, events: Sequence[StepReported], claimer: Claimer | None) -> tuple[list[Answer], list[Claim]]:
        replies: list[Answer] = []
        claims: list[Claim] = []
        portions = _portions(events)
        for place, portion in enumerate(portions):
            asks = claimer if place == len(portions) - 1 else None
            body = ReportRequest(
                [_report_body(one) for one in portion],
                request_id=_name_of(portion),
                claim=None if asks is None else _claiming(asks, asks.slots),
            )
            told = await self._channel.ask(Replies, "POST", self._channel.path("report"), body, tries=TRIES)
            replies += [_reply(one) for one in told.replies]
            claims += await self._claims(told.claims)
        return replies, claims

    async def checkpoint(self, event: StepCheckpointed) -> Accepted:
        body = CheckpointRequest(event.run_id, event.no, event.fence, event.name, msgspec.Raw(event.value))
        told = await self._channel.ask(Replied, "POST", self._channel.path("checkpoint"), body, tries=TRIES)
        reply = _reply(told.reply)
        if not isinstance(reply, Accepted):
            raise reply
        return reply

    def forget(self, claim: Claim) -> None:
        """Nothing is remembered here."""

    async def _claims(self, told: Sequence[ClaimedStep]) -> list[Claim]:
        claims = []
        for one in told:
            step = msgspec.convert(one.row, Step)
            plan = await self._plan(one.definition_id)
            if plan is None:
                # Its lease is left to expire; another worker may have the version that reads it.
                log.error("step %s of run %s cannot be run here: its definition is unreadable", step.no, step.run_id)
                continue
            claims.append(
                Claim(
                    tenant=self._tenant,
                    run_id=step.run_id,
                    step=step,
                    planned=plan.of(step),
                    plan=plan,
                    claimed_at=one.claimed_at,
                    run_due_at=one.run_due_at,
                )
            )
        return claims

    async def _plan(self, definition_id: int) -> Any:
        if not self.plans.knows(definition_id):
            told = await self._channel.ask(StoredOne, "GET", f"/work/definitions/{definition_id}", tries=TRIES)
            plain = msgspec.structs.asdict(told.definition) | {"document": told.definition.document.encode()}
            stored = StoredDefinition(tenant=self._tenant, published_at=0, published_by="", **plain)
            self.plans.learn([stored])
        return self.plans.get(definition_id)

    async def _release(self, claimer: Claimer, claims: Sequence[Claim], why: str) -> None:
        await self.report(
            [
                StepReported(
                    tenant=self._tenant,
                    run_id=one.run_id,
                    actor=claimer.actor,
                    no=one.step.no,
                    fence=one.step.fence,
                    worker=claimer.worker,
                    outcome=Released(reason=why),
                )
                for one in claims
            ],
            None,
        )


def _report_body(event: StepReported) -> OneReport:
    streams = [_stream(one.name, one.start, one.body, one.after) for one in event.streams]
    return OneReport(event.run_id, event.no, event.fence, cast(Any, outcome_json(event.outcome)), streams)


def _claiming(claimer: Claimer, slots: int) -> Claiming:
    return Claiming(
        slots=min(slots, MOST_AT_ONCE),
        queues=tuple(sorted(claimer.queues)),
        blocking=tuple(sorted(claimer.blocking & claimer.queues)),
        blocking_slots=max(0, claimer.blocking_slots),
        lease_us=claimer.lease,
        give="rows",
    )


def _details(told: Mapping[str, msgspec.Raw]) -> Details:
    plain = {name: msgspec.json.decode(value) for name, value in told.items() if name != "input"}
    # No worker reads these two.
    return Details(**{**plain, "labels": None, "asked_before": None}, input=bytes(told["input"]))


def _portions(events: Sequence[StepReported]) -> list[list[StepReported]]:
    """The events in requests that are not too large."""
    portions: list[list[StepReported]] = [[]]
    size = 0
    for event in events:
        own = outcome_bytes(event.outcome) + 2048 + sum(len(one.body or b"") for one in event.streams)
        if isinstance(event.outcome, AskedCalls):
            own += sum(len(call.step) + CALL_BYTES for call in event.outcome.calls)
        if portions[-1] and (size + own > LARGEST_RESULT or len(portions[-1]) >= MOST_REPORTS):
            portions.append([])
            size = 0
        portions[-1].append(event)
        size += own
    return portions


def _name_of(events: Sequence[StepReported]) -> str:
    """The same for the same reports, so that a repetition is recognised."""
    named = [f"{one.run_id} {one.no} {one.fence} {type(one.outcome).__name__}" for one in events]
    return hashlib.sha256("\n".join(named).encode()).hexdigest()[:32]


def _reply(told: Mapping[str, Any]) -> Answer:
    if told["accepted"]:
        record = {name: value for name, value in told.items() if name not in ("accepted", "repeated")}
        return Accepted(record, repeated=told["repeated"])
    code = told["code"]
    if code == "unreadable":
        return Unreadable("steps", reason="the service cannot read it")
    kind = CODES.get(code)
    if kind is not None and issubclass(kind, Refused):
        return kind(told.get("detail", code))
    return Broken(f"the service could not record it: {told.get('detail', code)}")
