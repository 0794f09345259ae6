"""Everything that a worker without a database does over HTTP: register, claim, renew, read inputs, report, leave.

Each call runs the operation that a worker with a database runs, in the tenant of the key, for a worker that the owner
of the key registered. Rows, leases and fences decide in the same way. Data of a run is given only to the worker that
holds a step of it. `api.work` calls it.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Annotated, Any, TypedDict

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from stepkeep.definition.native.build import given_words, has_word
from stepkeep.kernel.decide.decision import Accepted, Claimer
from stepkeep.kernel.definition import SECOND, QueueSpec
from stepkeep.kernel.errors import Conflict, Contended, InvalidInput, NotAllowed, NotFound, PayloadSealed, Refused
from stepkeep.kernel.machine.events import StepCheckpointed, StepReported, StreamEnd
from stepkeep.kernel.machine.outcomes import Added, Outcome, Released, Suspended
from stepkeep.kernel.machine.rows import Details, Step, StreamPart, Worker
from stepkeep.kernel.machine.states import WorkerState
from stepkeep.kernel.people.authority import ANY_WORK, Caller, MembershipKind
from stepkeep.operations import validate
from stepkeep.operations.access import Access, guarded
from stepkeep.operations.answers import says
from stepkeep.operations.people.network import list_allowed
from stepkeep.operations.pipeline import workers
from stepkeep.operations.pipeline.batch import Answer
from stepkeep.operations.pipeline.call_queues import NewStep
from stepkeep.operations.pipeline.codec import SEALED_QUEUE
from stepkeep.operations.pipeline.expire import sweep_timers
from stepkeep.operations.pipeline.plans import plan_of
from stepkeep.operations.pipeline.transact import Claim, Transactor, first_claimed_at
from stepkeep.operations.remote.asked_calls import AskedCalls, Proposed, is_long, read_asked, read_proposed
from stepkeep.operations.remote.recorded_calls import CallPage
from stepkeep.operations.remote.recorded_checkpoints import CheckpointPage, Place
from stepkeep.operations.remote.services import encode_service, read_service
from stepkeep.operations.remote.work_state import Held, WorkState
from stepkeep.store.change import Lease, Renewed, RunKey, StoredDefinition
from stepkeep.store.protocol import RUNS_STOPPED, Notification
from stepkeep.store.records import FIRST_CHECKPOINT, Evidence
from stepkeep.store.streams import Holder

CAPABILITY_ROLE = "capability:"
"""The owner of a key needs the role `capability:gpu` for a remote worker with the capability gpu."""

SWEEP_SECONDS = 1.0
QUEUES_SECONDS = 1.0
LOOK_SECONDS = 1.0
"""How often a waiting claim looks again, in case a notification was lost."""

LONGEST_WAIT_SECONDS = 50.0
MOST_AT_ONCE = 1000
SHORTEST_LEASE_US, LONGEST_LEASE_US = SECOND, 24 * 3600 * SECOND
UNFIT_SECONDS = 60.0

_unsafe = re.compile(r"[^a-z0-9_.-]")
_is_instance = re.compile(r"[0-9a-f]{8,32}").fullmatch


LARGEST = 2**53
MAX_NUMBER = 2**31 - 1
"""The largest number of a step, a fence or an attempt that a store keeps."""
Number = Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
Large = Annotated[int, Meta(ge=0, le=LARGEST)]
Handlers = Annotated[tuple[str, ...], Meta(max_length=10_000)]


class WorkNotice(TypedDict):
    """What a worker is told: queues with ready steps, and held runs whose attempts must end. None: any."""

    queues: list[int] | None
    stopped: list[str] | None


class ClaimTerms(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a worker claims: from these queues, or from those of these handlers."""

    slots: Annotated[int, Meta(ge=0, le=MOST_AT_ONCE, description="How many at most.")] = 1
    queues: Annotated[
        Annotated[tuple[int, ...], Meta(max_length=100_000)] | None, says("By number, of GET /work/queues.")
    ] = None
    handlers: Annotated[Handlers | None, says("Or by the names of handlers.")] = None
    groups: Annotated[
        Annotated[tuple[str, ...], Meta(max_length=1000)] | None, says("With `handlers`: only these named queues.")
    ] = None
    blocking: Annotated[tuple[int, ...], Meta(max_length=100_000, description="Queues with a limit of their own.")] = ()
    blocking_slots: Large = 0
    lease_us: Annotated[Annotated[int, Meta(ge=1, le=LARGEST)] | None, says("Another lease than the definition's.")] = (
        None
    )


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one attempt."""

    run_id: str
    no: int
    fence: int
    outcome: Outcome
    streams: tuple[StreamEnd, ...] = ()


class PartGiven(msgspec.Struct, frozen=True):
    """Chunks that a worker writes to a stream: the place of the first, how many, and their JSON array."""

    name: str
    start: int
    count: int
    body: bytes | None
    after: tuple[int, int] | None

    def end(self) -> StreamEnd:
        """The end of the stream, without what is known where it is stored."""
        chunks = self.start + self.count
        return StreamEnd(
            name=self.name, chunks=chunks, size_bytes=0, sha256="", start=self.start, body=self.body, after=self.after
        )


class ClaimName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a claim is named by."""

    run_id: Annotated[str, Meta(max_length=36)]
    no: Number
    fence: Number


@guarded("work.")
class RemoteWork:
    """The remote workers of one caller. `state` is shared by all callers of the process."""

    def __init__(
        self,
        transactor: Transactor,
        access: Access,
        state: WorkState,
        monotonic: Callable[[], float] = time.monotonic,
        admitted: str | None = None,
    ) -> None:
        self.access, self.admitted = access, admitted
        self._transactor, self._store, self._state, self._monotonic = transactor, transactor.store, state, monotonic
        self._tenant = access.tenant

    # -- life --------------------------------------------------------------------------------------------------------
    async def register(
        self, *, app: str, instance: str, host: str, pid: int, capacity: int, capabilities: Sequence[str]
    ) -> tuple[Worker, bool]:
        """Register a worker; returns whether it is new. The same instance again is the same worker, as long as it is
        not shut down."""
        if _is_instance(instance) is None:
            raise InvalidInput("the instance of a worker has 8 to 32 hexadecimal digits, chosen at random.")
        words = tuple(sorted(set(validate.names("the capabilities of a worker", capabilities))))
        await self._require_capabilities(words)
        parts = (validate.key("the name of a worker", app, 100), validate.key("the host", host, 100), str(pid))
        worker_id = ":".join([_unsafe.sub("-", part.lower()) for part in parts] + [instance + self._mark])
        try:
            row = await workers.register(
                self._store,
                tenant=self._tenant,
                app=app,
                capacity=capacity,
                capabilities=words,
                owner=self.access.owner,
                worker_id=worker_id,
            )
        except Contended:
            known = await self._store.find_worker(self._tenant, worker_id)
            if known is None or known.owner != self.access.owner or known.state is WorkerState.SHUTDOWN:
                raise Conflict(f"the worker {worker_id} was there before. Choose another instance.") from None
            return known, False
        self._state.note_worker(row)
        return row, True

    async def beat(self, worker_id: str, *, busy: bool | None, report: Any = None) -> Worker:
        """Record a heartbeat, and what the worker says about itself. One that is shut down must register anew."""
        row = await self._fresh(worker_id)
        row = await workers.beat(self._store, row)
        if row.state is not WorkerState.SHUTDOWN:
            if busy:
                held = (
                    one.claim for one in self._state.held.values() if one.worker == row.no and one.claim is not None
                )
                row = await workers.mark_busy(self._store, row, first_claimed_at(held))
            elif busy is False:
                row = await workers.mark_idle(self._store, row)
            if report is not None:
                await self._publish(row, report)
        self._state.note_worker(row)
        await self._sweep()
        return row

    async def drain(self, worker_id: str) -> Worker:
        """The worker claims no more."""
        return await workers.drain(self._store, await self._fresh(worker_id))

    async def leave(self, worker_id: str) -> Worker:
        """Deregister the worker. What it still holds waits for its leases."""
        return await workers.shut_down(self._store, await self._fresh(worker_id))

    # -- what there is -----------------------------------------------------------------------------------------------
    async def queues(self) -> dict[int, QueueSpec]:
        """The queues of the tenant that the key may work on, by number. That sealed runs exist is told only where this
        process cannot open them."""
        limits, is_open = self.access.limits, self._transactor.payloads.seal.is_on
        return {
            number: spec
            for number, spec in (await self._queues()).items()
            if (not is_open if spec == SEALED_QUEUE else limits.allow(spec))
        }

    async def definition(self, definition_id: int) -> StoredDefinition:
        """A published definition by its number."""
        stored = (await self._store.read_definitions([definition_id])).get(definition_id)
        if stored is None or stored.tenant != self._tenant:
            raise NotFound(f"there is no definition {definition_id}")
        return stored

    async def network(self) -> list[str]:
        """The allow list of the tenant, which HTTP steps need."""
        allowed: list[str] = (await list_allowed(self._store, self._tenant))["allow"]
        return allowed

    # -- work --------------------------------------------------------------------------------------------------------
    async def claim(
        self,
        worker_id: str,
        wanted: ClaimTerms,
        *,
        request: str | None,
        wait_seconds: float,
        after: int | None = None,
        run: str | None = None,
        is_gone: Any = None,
    ) -> list[Claim]:
        """Claim ready steps that became ready after a moment, or of one run; if there are none, wait for some.
        `is_gone` tells that its client is gone."""
        row = await self._worker(worker_id)
        await self._sweep()
        until = self._monotonic() + min(wait_seconds, LONGEST_WAIT_SECONDS)

        async def work() -> list[Claim]:
            return await self._claim_until(
                row, wanted, until, is_gone, after, None if run is None else validate.run_id(run)
            )

        found: list[Claim] = await self._state.once(self._request(row, request), self._monotonic(), work)
        return found

    async def renew(self, worker_id: str, leases: Sequence[Lease]) -> list[Renewed]:
        """Renew leases that this worker holds; those that it lost are left out."""
        row = await self._worker(worker_id)
        await self._sweep()
        own = await self._held_by(row, [(one.run_id, one.no, one.fence) for one in leases])
        mine = [
            replace(one, tenant=self._tenant, lease=_lease(one.lease))
            for one in leases
            if (one.run_id, one.no, one.fence) in own
        ]
        renewed = await self._store.renew(mine) if mine else []
        still = {(one.run_id, one.no, one.fence) for one in renewed}
        now = self._monotonic()
        for lease in mine:
            name = (self._tenant, lease.run_id, lease.no, lease.fence)
            if name[1:] in still:
                before = self._state.held.get(name)
                claim = None if before is None else before.claim
                self._state.hold(name, Held(row.no, now + lease.lease / SECOND, claim))
            else:
                self._drop(name)
        return renewed

    async def report(
        self, worker_id: str, reports: Sequence[Report], wanted: ClaimTerms | None, *, request: str | None
    ) -> tuple[list[Answer], list[Claim]]:
        """Report outcomes in one transaction and claim the steps they made ready, like any other worker."""
        row = await self._worker(worker_id)
        claimer = None if wanted is None or wanted.slots == 0 else await self._claimer(row, wanted)

        async def work() -> tuple[list[Answer], list[Claim]]:
            # All are read first: nothing is made for a request of which one report is refused.
            read = [await self._read(row, one) for one in reports]
            outcomes = [await self._with_queues(outcome, steps) for outcome, steps in read]
            events = [
                StepReported(
                    tenant=self._tenant,
                    run_id=validate.run_id(one.run_id),
                    actor=row.id,
                    no=one.no,
                    fence=one.fence,
                    worker=row.no,
                    outcome=outcome,
                    streams=one.streams,
                )
                for one, outcome in zip(reports, outcomes, strict=True)
            ]
            answers, claims = await self._transactor.report(events, claimer)
            for event, answer in zip(events, answers, strict=True):
                if isinstance(answer, Accepted) and answer.record.get("state") != "validating":
                    self._drop((self._tenant, event.run_id, event.no, event.fence))
            self._hold(row, claims, None if wanted is None else wanted.lease_us)
            return answers, claims

        found: tuple[list[Answer], list[Claim]] = await self._state.once(
            self._request(row, request), self._monotonic(), work
        )
        return found

    async def checkpoint(self, worker_id: str, *, run_id: str, no: int, fence: int, name: str, value: bytes) -> Answer:
        """Record a checkpoint of an attempt that this worker runs. The same one again changes nothing."""
        row = await self._worker(worker_id)
        event = StepCheckpointed(
            tenant=self._tenant,
            run_id=validate.run_id(run_id),
            actor=row.id,
            no=no,
            fence=fence,
            worker=row.no,
            name=validate.key("the name of a checkpoint", name, 100),
            value=value,
        )
        try:
            return await self._transactor.checkpoint(event)
        except Refused as refusal:
            return refusal

    async def write(self, worker_id: str, name: ClaimName, given: Sequence[PartGiven]) -> None:
        """Append to streams of a run while this worker holds the step."""
        row = await self._worker(worker_id)
        holder = Holder(self._tenant, validate.run_id(name.run_id), name.no, name.fence, row.no)
        parts = [
            StreamPart(
                tenant=self._tenant,
                run_id=holder.run_id,
                no=name.no,
                name=one.name,
                fence=name.fence,
                start=one.start,
                count=one.count,
                at=0,
                body=one.body,
                after=one.after,
            )
            for one in given
            if one.body is not None
        ]
        if name.fence < 1 or len({one.name for one in parts}) < len(parts):
            raise InvalidInput("an attempt has a fence from 1 on, and names each stream once.")
        if parts:
            await self._transactor.streams.append(holder, parts)

    async def _read(self, row: Worker, report: Report) -> tuple[Outcome, Sequence[NewStep]]:
        """The outcome of a report, and the steps that a handler adds or the calls that a flow makes. Both are read like
        a definition."""
        proposed = report.outcome
        if isinstance(proposed, AskedCalls):
            claim = await self._claim_of(row, ClaimName(report.run_id, report.no, report.fence))
            if claim is None:
                # The lease is gone: the kernel refuses the report, whatever it says.
                return Released(), ()
            given = (proposed, claim.plan, claim.planned, claim.step)
            return await asyncio.to_thread(read_asked, *given) if is_long(proposed) else read_asked(*given)
        if isinstance(proposed, Proposed):
            plan = await plan_of(self._transactor, self._tenant, report.run_id)
            if plan.name_of(report.no) is None:
                raise NotFound(f"run {report.run_id} has no step {report.no}")
            return read_proposed(proposed, plan, plan.at(report.no))
        return proposed, ()

    async def _with_queues(self, outcome: Outcome, steps: Sequence[NewStep]) -> Outcome:
        """The outcome with its new steps, whose queues are made if need be."""
        if not isinstance(outcome, Added | Suspended) or not steps:
            return outcome
        return await self._state.call_queues_of(self._tenant, self._store).resolve(outcome, steps)

    async def _claim_of(self, row: Worker, name: ClaimName) -> Claim | None:
        """A claim that the worker holds, as this process knows it or as it is stored; None if it holds it not."""
        held = self._state.held.get((self._tenant, name.run_id, name.no, name.fence))
        if held is not None and held.claim is not None and held.until >= self._monotonic():
            return held.claim if held.worker == row.no else None
        steps = await self._store.read_steps(self._tenant, validate.run_id(name.run_id))
        step = next((one for one in steps if one.no == name.no), None)
        if step is None or (step.worker, step.fence) != (row.no, name.fence):
            return None
        plan = await plan_of(self._transactor, self._tenant, name.run_id)
        return Claim(
            tenant=self._tenant,
            run_id=name.run_id,
            step=step,
            planned=plan.of(step),
            plan=plan,
            claimed_at=step.claimed_at or 0,
        )

    async def _held(self, worker_id: str, name: ClaimName) -> Claim:
        """A claim that the worker must hold."""
        claim = await self._claim_of(await self._worker(worker_id), name)
        if claim is None:
            raise NotFound(f"worker {worker_id} does not hold step {name.no} of run {name.run_id}")
        return claim

    async def calls(self, worker_id: str, name: ClaimName, *, start: int, until: int | None) -> CallPage:
        """A page of the recorded calls of a flow that the worker holds, with their results."""
        claim = await self._held(worker_id, name)
        if not claim.planned.kind.is_flow:
            raise InvalidInput(f"step {claim.planned.name} of run {name.run_id} is no flow: it makes no calls.")
        return await self._transactor.calls.page(claim, start, until, self._value)

    async def checkpoints(self, worker_id: str, name: ClaimName, after: Place) -> CheckpointPage:
        """What earlier attempts of a step that the worker holds have recorded."""
        return await self._checkpoints(await self._held(worker_id, name), after)

    def first_checkpoints(self, claim: Claim) -> Awaitable[CheckpointPage]:
        """The first page of a claim."""
        return self._checkpoints(claim, FIRST_CHECKPOINT)

    async def _checkpoints(self, claim: Claim, after: Place) -> CheckpointPage:
        key = (claim.tenant, claim.run_id)
        return await self._transactor.checkpoints.page(claim, after, lambda stored: self._value(key, stored))

    async def evidence(self, worker_id: str, found: Sequence[tuple[str, int, int, bytes]]) -> int:
        """Keep the evidence of attempts that this worker has ended; returns of how many."""
        row = await self._worker(worker_id)
        seal, kept = self._transactor.payloads.seal, []
        for run_id in sorted({one[0] for one in found}):
            ended = {
                (attempt.no, attempt.fence)
                for attempt in await self._store.read_attempts(self._tenant, validate.run_id(run_id))
                if attempt.worker == row.no
            }
            kept += [
                Evidence(self._tenant, run_id, no, fence, seal.seal(body))
                for of, no, fence, body in found
                if of == run_id and (no, fence) in ended
            ]
        if kept:
            await self._store.add_evidence(kept)
        return len(kept)

    # -- data of runs ------------------------------------------------------------------------------------------------
    async def details(self, worker_id: str, run_ids: Iterable[str]) -> dict[str, Details]:
        """The immutable data of runs of which the worker holds a step, with inputs as they were given."""
        keys = await self._readable(worker_id, run_ids)
        found = await self._store.read_details(keys)
        return {key[1]: replace(one, input=await self._value(key, one.input)) for key, one in found.items()}

    async def outputs(self, worker_id: str, wants: Sequence[tuple[str, int]]) -> dict[tuple[str, int], bytes | None]:
        """Outputs of steps of runs of which the worker holds a step."""
        await self._readable(worker_id, {run_id for run_id, _ in wants})
        found = await self._store.read_outputs([(self._tenant, run_id, no) for run_id, no in wants])
        return {
            (run_id, no): None if output is None else await self._value((self._tenant, run_id), output)
            for (_, run_id, no), output in found.items()
        }

    async def states(self, worker_id: str, run_id: str) -> list[Step]:
        """The steps of a run of which the worker holds one."""
        await self._readable(worker_id, [run_id])
        return await self._store.read_steps(self._tenant, run_id)

    def opened(self, claim: Claim) -> Awaitable[Step]:
        """The row of a claimed step with its payloads as they were given: the message that woke it, and the arguments
        of a call. One that this process cannot open stays sealed."""
        return self._opened(claim)

    def arguments(self, claim: Claim) -> Awaitable[bytes | None]:
        """The arguments of a call of a flow, or the inputs of a step that a handler added; None for any other step."""
        return self._arguments(claim)

    async def _opened(self, claim: Claim) -> Step:
        step, key, note = claim.step, (claim.tenant, claim.run_id), claim.step.note
        if note is None:
            return step
        if note.call is not None:
            note = replace(note, call=replace(note.call, arguments=(await self._text(key, note.call.arguments))))
        return replace(step, note=replace(note, woken_by=self._opened_message(note.woken_by)))

    async def _arguments(self, claim: Claim) -> bytes | None:
        call = claim.planned.call
        return None if call is None else await self._value((claim.tenant, claim.run_id), call.arguments.encode())

    async def _text(self, key: RunKey, payload: str) -> str:
        return (await self._value(key, payload.encode())).decode()

    def _opened_message(self, woken_by: str | None) -> str | None:
        seal, record = self._transactor.payloads.seal, None if woken_by is None else msgspec.json.decode(woken_by)
        if not seal.is_on or record is None or record.get("message") is None:
            return woken_by
        message = record["message"]
        record["message"] = {**message, "payload": seal.opened_value(message["payload"])}
        return msgspec.json.encode(record).decode()

    # -- notices -----------------------------------------------------------------------------------------------------
    async def listen(self, worker_id: str) -> Worker:
        """Check that the worker may listen."""
        return await self._worker(worker_id)

    def notice(self, row: Worker, notification: Notification) -> WorkNotice | None:
        """What of a notification concerns this worker: queues of its tenant with ready steps (null: any), and held
        runs whose attempts must end (null: any)."""
        _, known = self._state.queues.get(self._tenant, (0.0, {}))
        allowed = {number for number, spec in known.items() if self.access.limits.allow(spec)}
        queues = None if notification.topics is None else sorted(notification.topics & allowed)
        if notification.topics is not None and (unknown := notification.topics - known.keys()) and max(unknown) > 0:
            # A queue that is new, or of another tenant: the worker reads its queues again.
            queues = None if max(unknown) > max(known, default=0) else queues
        stopped = notification.runs_of(RUNS_STOPPED)
        if stopped is not None:
            now = self._monotonic()
            stopped = frozenset(
                run_id for run_id in stopped if self._state.holds_run(self._tenant, run_id, row.no, now)
            )
        if queues == [] and stopped is not None and not stopped:
            return None
        return {"queues": queues, "stopped": None if stopped is None else sorted(stopped)}

    # -- inside ------------------------------------------------------------------------------------------------------
    async def _claim_until(
        self, row: Worker, wanted: ClaimTerms, until: float, is_gone: Any, after: int | None, run: str | None
    ) -> list[Claim]:
        ready = asyncio.Event()
        unsubscribe = self._store.notifier.listen(lambda notification: ready.set())
        try:
            while True:
                ready.clear()
                claims = await self._claim_now(row, wanted, after, run)
                left = until - self._monotonic()
                if claims or left <= 0 or (is_gone is not None and await is_gone()):
                    return claims
                try:
                    async with asyncio.timeout(min(left, LOOK_SECONDS)):
                        await ready.wait()
                except TimeoutError:
                    await self._sweep()
                await self.access.admit("work.claim")
        finally:
            unsubscribe()

    async def _claim_now(self, row: Worker, wanted: ClaimTerms, after: int | None, run: str | None) -> list[Claim]:
        claimer = await self._claimer(row, wanted)
        if not claimer.queues or not wanted.slots:
            return []
        of = None if run is None else (self._tenant, validate.run_id(run))
        claims = await self._transactor.claim(claimer, limit=wanted.slots, after=after, run=of)
        self._hold(row, claims, wanted.lease_us)
        return claims

    async def _claimer(self, row: Worker, wanted: ClaimTerms) -> Claimer:
        known = await self._queues()
        if wanted.queues is not None and set(wanted.queues) - known.keys():
            known = await self._queues(anew=True)
        if wanted.queues is None:
            chosen = self._of_handlers(row, wanted, known)
        else:
            chosen = frozenset(wanted.queues)
            if unknown := sorted(chosen - known.keys()):
                raise InvalidInput(f"there is no queue {unknown[0]}. GET /work/queues lists those there are.")
            for number in chosen:
                self._require(known[number])
                words = given_words(known[number].capabilities)
                if lacks := [word for word in words if not has_word(row.capabilities, word)]:
                    raise NotAllowed(
                        f"queue {number} needs the capability {lacks[0]}, which worker {row.id} was not registered "
                        "with.",
                        "capability",
                        self.access.actor,
                    )
        chosen -= (await self._state.pauses.read(self._store, self._tenant)).numbers(known.items())
        return Claimer(
            actor=row.id,
            worker=row.no,
            lease=None if wanted.lease_us is None else _lease(wanted.lease_us),
            slots=min(wanted.slots, MOST_AT_ONCE),
            queues=chosen,
            blocking=frozenset(wanted.blocking) & chosen,
            blocking_slots=wanted.blocking_slots,
            owner=row.owner,
        )

    def _of_handlers(self, row: Worker, wanted: ClaimTerms, known: Mapping[int, QueueSpec]) -> frozenset[int]:
        """The queues of these handlers that the worker can serve, as far as the service can tell."""
        now, names, limits = self._monotonic(), frozenset(wanted.handlers or ()), self.access.limits
        for name, group in itertools.product(sorted(names), wanted.groups or limits.queues or ("",)):
            self._require(QueueSpec(kind="python", name=name, group=group))
        return frozenset(
            number
            for number, spec in known.items()
            if spec.kind == "python"
            and limits.allow(spec)
            and spec.name in names
            and (wanted.groups is None or spec.group in wanted.groups)
            and all(has_word(row.capabilities, word) for word in given_words(spec.capabilities))
            and self._state.unfit.get((self._tenant, row.no, number), 0.0) <= now
        )

    def _require(self, spec: QueueSpec) -> None:
        """Refuse a queue that the key may not work on."""
        limits = self.access.limits
        if not limits.allow(spec):
            what = f"steps of {spec.name or spec.kind} in the queue {spec.group or repr(spec.group)}"
            said = f"{what} are not for this key, which is limited to {limits}. GET /work/queues lists what it may do."
            raise NotAllowed(said, "work_limits", self.access.actor)

    @property
    def _mark(self) -> str:
        """The end of the ids of workers that keys with the same limits registered. Other keys do not find them."""
        limits = self.access.limits
        return "" if limits == ANY_WORK else f"-{sha256(msgspec.json.encode(limits)).hexdigest()[:16]}"

    def set_unfit(self, worker_id: str, queue: int) -> None:
        """Offer the worker no step of this queue for a while."""
        row = self._state.workers.get((self._tenant, worker_id))
        if row is not None:
            self._state.unfit[self._tenant, row.no, queue] = self._monotonic() + UNFIT_SECONDS

    def opened_value(self, value: Any) -> Any:
        """A payload inside other JSON, opened where this process can."""
        seal = self._transactor.payloads.seal
        return seal.opened_value(value) if seal.is_on else value

    async def _require_capabilities(self, words: Sequence[str]) -> None:
        if not words:
            return
        caller = Caller(self._tenant, self.access.actor, None if self.access.key is None else self.access.key.id)
        authority = (await self._store.people.read_authorities([caller]))[caller]
        now = await self._store.now()
        for word in words:
            if not authority.has(MembershipKind.ROLE, f"{CAPABILITY_ROLE}{word}", now):
                raise NotAllowed(
                    f"{self.access.actor} may not work with the capability {word}: it lacks the role "
                    f"{CAPABILITY_ROLE}{word}. An administrator gives it: stepkeep users grant.",
                    "capability",
                    self.access.actor,
                )

    async def _worker(self, worker_id: str) -> Worker:
        """The worker of this id, if the owner of the key registered it with a key of the same limits. Its number and
        its owner never change."""
        known = self._state.workers.get((self._tenant, worker_id))
        row = known or await self._store.find_worker(self._tenant, validate.key("the id of a worker", worker_id))
        is_own = row is not None and row.owner is not None and row.owner == self.access.owner
        if row is None or not is_own or worker_id.rpartition(":")[2].partition("-")[2] != self._mark[1:]:
            raise NotFound(f"there is no worker {worker_id}")
        if known is None:
            self._state.note_worker(row)
        return row

    async def _fresh(self, worker_id: str) -> Worker:
        await self._worker(worker_id)
        row = await self._store.find_worker(self._tenant, worker_id)
        if row is None:
            raise NotFound(f"there is no worker {worker_id}")
        return row

    async def _publish(self, row: Worker, report: Any) -> None:
        body = msgspec.json.encode(report)
        if (offer := read_service(body)) is None:
            raise InvalidInput("`report` is not what a worker says about itself: see the docs on remote workers.")
        if (limits := self.access.limits) != ANY_WORK:
            body = encode_service(offer.within(limits))
        await self._store.report_worker(self._tenant, row.no, body)

    async def _queues(self, *, anew: bool = False) -> dict[int, QueueSpec]:
        now = self._monotonic()
        read_at, known = self._state.queues.get(self._tenant, (float("-inf"), {}))
        if anew or now - read_at >= QUEUES_SECONDS:
            known = dict(await self._store.list_queues(self._tenant))
            self._state.queues[self._tenant] = (now, known)
        return known

    async def _sweep(self) -> None:
        """Fire due timers about once a second, because a tenant may have no other worker than remote ones. What parents
        ask for about child runs is done then, and at once where this process heard of it."""
        now, children = self._monotonic(), self._state.children_of(self._tenant, self._transactor)
        if children.changed.is_set():
            await children.sweep()
        if now - self._state.swept_at.get(self._tenant, float("-inf")) < SWEEP_SECONDS:
            return
        self._state.swept_at[self._tenant] = now
        for name, held in list(self._state.held.items()):
            if held.until < now - SWEEP_SECONDS:
                self._drop(name)
        await sweep_timers(self._transactor)
        await children.sweep()
        code = self._state.code_of(self._tenant, self._transactor)
        if code.is_due(now):
            await code.sweep()
        await workers.retire_silent(self._store, actor="sweep")

    def _hold(self, row: Worker, claims: Iterable[Claim], lease_us: int | None) -> None:
        now = self._monotonic()
        for claim in claims:
            lease = lease_us or claim.plan.definition.lease
            name = (claim.tenant, claim.run_id, claim.step.no, claim.step.fence)
            self._state.hold(name, Held(row.no, now + lease / SECOND, claim))

    def _drop(self, name: tuple[str, str, int, int]) -> None:
        claim = self._state.drop(name)
        if claim is not None:
            self._transactor.forget(claim)

    async def _held_by(self, row: Worker, names: Sequence[tuple[str, int, int]]) -> set[tuple[str, int, int]]:
        """Those of these claims that the worker holds. What this process does not know, it reads."""
        now = self._monotonic()
        found, unknown = set(), []
        for name in names:
            held = self._state.held.get((self._tenant, *name))
            if held is not None and held.until >= now:
                found |= {name} if held.worker == row.no else set()
            else:
                unknown.append(name)
        for run_id in sorted({name[0] for name in unknown}):
            steps = await self._store.read_steps(self._tenant, validate.run_id(run_id))
            mine = {(run_id, step.no, step.fence) for step in steps if step.worker == row.no}
            found |= mine.intersection(unknown)
        return found

    async def _readable(self, worker_id: str, run_ids: Iterable[str]) -> list[RunKey]:
        """These runs, if the worker holds a step of each; otherwise they are not there."""
        row, keys = await self._worker(worker_id), []
        now = self._monotonic()
        for run_id in run_ids:
            if not self._state.holds_run(self._tenant, run_id, row.no, now):
                steps = await self._store.read_steps(self._tenant, validate.run_id(run_id))
                if not any(step.worker == row.no for step in steps):
                    raise NotFound(f"worker {worker_id} holds no step of run {run_id}")
            keys.append((self._tenant, run_id))
        return keys

    async def _value(self, key: RunKey, payload: bytes) -> bytes:
        """A payload as it was given; one that this process cannot open stays sealed."""
        try:
            return await self._transactor.payloads.value(*key, payload)
        except PayloadSealed:
            return payload

    def _request(self, row: Worker, request: str | None) -> tuple[str, int, str | None]:
        return (self._tenant, row.no, request)


def _lease(given: int) -> int:
    return max(SHORTEST_LEASE_US, min(LONGEST_LEASE_US, given))
