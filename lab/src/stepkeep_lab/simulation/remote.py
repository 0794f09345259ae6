"""Remote workers in the simulator: real workers whose requests reach the operations of the service, with faults.

A request is JSON on its way there and back. It may be lost, answered into the void, late, or arrive twice, and the
server may die meanwhile. The HTTP framework is left out: `SimulatedService` calls `RemoteWork` as the routes do.
`processes.py` gives some workplaces such a worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from stepkeep.kernel.decide.decision import Accepted, Claimer
from stepkeep.kernel.errors import ConnectionLost, StepkeepError, StoreUnavailable
from stepkeep.kernel.machine.events import StepReported
from stepkeep.kernel.people.authority import Caller
from stepkeep.network.service import RemoteService, ServerEvent, ServiceAnswer
from stepkeep.operations.access import Access, Credential, parse_key
from stepkeep.operations.people.keys import create_key
from stepkeep.operations.pipeline.batch import Answer
from stepkeep.operations.pipeline.transact import Claim
from stepkeep.operations.remote.asked_calls import AskedCalls
from stepkeep.operations.remote.remote_work import RemoteWork, Report
from stepkeep.operations.remote.work_messages import (
    Queues,
    claimed,
    queues_of,
    recorded,
    recorded_checkpoints,
    registered,
    reply_of,
    run_data,
    stored,
)
from stepkeep.operations.remote.work_outcomes import outcome_of
from stepkeep.store.change import Lease
from stepkeep.store.principals import PrincipalKind
from stepkeep.store.protocol import Notification
from stepkeep.worker.remote.channel import Channel
from stepkeep.worker.remote.membership import RemoteMembership
from stepkeep.worker.remote.requests import (
    CallsRequest,
    CheckpointRequest,
    CheckpointsRequest,
    ClaimRequest,
    EvidenceRequest,
    Heartbeat,
    InputsRequest,
    Registration,
    RenewRequest,
    ReportRequest,
    StreamsRequest,
)
from stepkeep.worker.remote.transactor import RemoteTransactor
from stepkeep_lab.simulation.faults import Fault, FaultyWire
from stepkeep_lab.simulation.loop import SimulationOver
from stepkeep_lab.simulation.stage import TENANT, Stage
from stepkeep_lab.simulation.store import ModelStore

if TYPE_CHECKING:
    from stepkeep_lab.simulation.loop import Process
    from stepkeep_lab.simulation.processes import Server

OWNER = "carrier"
"""The program to which the key of remote workers belongs."""

REQUEST = "http"
"""The name of a request among the statements to which something may happen."""

SILENCE_SECONDS = 2.0


async def give_key(stage: Stage) -> Credential:
    """The key that remote workers use, made before anything goes wrong."""
    tables, now = stage.database.tables.people, stage.database.clock()
    tables.register(TENANT, OWNER, PrincipalKind.SERVICE, now)
    made = await create_key(
        ModelStore(stage.database),
        OWNER,
        scopes=["work"],
        expires_at=None,
        expires_in=None,
        caller=Caller(TENANT, "root"),
    )
    return parse_key(made.secret)


class ServiceWire(FaultyWire):
    """The way of a remote worker to the service."""

    def __init__(self, stage: Stage, process: Process, server: Server) -> None:
        super().__init__(stage, process)
        self._server = server
        self._doubles = stage.random(f"doubles:{process.name}")

    async def call(self, operation: Callable[[Server], Awaitable[bytes]]) -> bytes:
        stage, answer = self._stage, self._stage.loop.create_future()
        fate = self._fate(REQUEST)
        if fate is Fault.CRASH_BEFORE:
            stage.kill(self._process)
        elif fate is Fault.REQUEST_LOST:
            stage.later(self._latency(), self._break, answer, "the request was lost")
        else:
            stage.later(self._latency(), self._reach, operation, fate, answer)
            if stage.chaos and self._doubles.random() < stage.scenario.duplicate:
                stage.log.note(Fault.REQUEST_DOUBLED, self._process.name)
                late = self._doubles.choice((0.0, 0.5, 5.0)) * self._doubles.random()
                stage.later(late, self._reach, operation, None, None)
        found: bytes = await answer
        return found

    def _reach(
        self, operation: Callable[[Server], Awaitable[bytes]], fate: Fault | None, answer: asyncio.Future[bytes] | None
    ) -> None:
        """The request is at the server. No client waits for the answer to a copy."""
        done = self._stage.loop.create_future()
        done.add_done_callback(lambda done: self._answered(done, fate, answer))
        self._server.accept(operation, done)

    def _answered(self, done: asyncio.Future[bytes], fate: Fault | None, answer: asyncio.Future[bytes] | None) -> None:
        problem = done.exception()
        if problem is not None and not isinstance(problem, StepkeepError):
            self._stage.ledger.violation(f"the service broke: {type(problem).__name__}: {problem}")
            problem = StoreUnavailable("the service broke")
        if answer is not None:
            self._back(REQUEST, None if problem else done.result(), problem, fate, answer)

    def _break(self, answer: asyncio.Future[bytes], why: str) -> None:
        if not answer.done():
            answer.set_exception(ConnectionLost(why))


class SimulatedService(RemoteService):
    """What a remote worker knows of the service."""

    def __init__(self, stage: Stage, server: Server, process: Process, key: Credential) -> None:
        super().__init__("http://service.invalid", "")
        self._stage, self._server, self._credential = stage, server, key
        self._wire = ServiceWire(stage, process, server)

    async def request(self, method: str, path: str, **options: Any) -> ServiceAnswer:
        body = msgspec.json.encode(options.get("body"))
        seconds: float = options.get("seconds") or 30.0
        try:
            async with asyncio.timeout(seconds):
                found = await self._wire.call(partial(self._do, method, path, body))
        except TimeoutError:
            raise ConnectionLost(f"no answer within {seconds} seconds") from None
        return ServiceAnswer(200, found, {})

    @asynccontextmanager
    async def events(self, path: str, **options: Any) -> AsyncIterator[AsyncIterator[ServerEvent]]:
        server, process, worker_id = self._server, self._server.process, path.split("/")[3]
        if process is None:
            raise StoreUnavailable("the server is not there")
        work = await self._work(server)
        row = await work.listen(worker_id)
        await work.queues()
        waiting: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

        def heard(notification: Notification) -> None:
            told = work.notice(row, notification)
            for late in () if told is None else self._wire.notification():
                self._stage.later(late, waiting.put_nowait, told)

        async def follow() -> AsyncGenerator[ServerEvent]:
            # Once it listens, anything may have happened before.
            yield ServerEvent("notice", b'{"queues":null,"stopped":null}')
            while server.process is process:
                try:
                    async with asyncio.timeout(SILENCE_SECONDS):
                        told = await waiting.get()
                except TimeoutError:
                    continue
                except SimulationOver:
                    return  # nobody reads it any more, and its loop is closed
                yield ServerEvent("notice", msgspec.json.encode(told))
            raise ConnectionLost("the server went away")

        unsubscribe, stream = server.transactor.store.notifier.listen(heard), follow()
        try:
            async with aclosing(stream):
                yield stream
        finally:
            unsubscribe()

    # -- at the service ----------------------------------------------------------------------------------------------
    async def _work(self, server: Server) -> RemoteWork:
        access = Access(server.transactor.store, TENANT, OWNER, self._credential, monotonic=self._stage.loop.time)
        await access.open()
        return RemoteWork(server.transactor, access, server.work, monotonic=self._stage.loop.time)

    async def _do(self, method: str, path: str, sent: bytes, server: Server) -> bytes:
        work = await self._work(server)
        parts = path.split("/")[2:]
        if parts[0] == "workers":
            told: Any = await self._of_worker(work, parts[1:], sent)
        elif parts[0] == "definitions":
            told = stored(await work.definition(int(parts[1])))
        elif parts[0] == "network":
            told = {"allow": await work.network()}
        else:
            told = Queues(tenant=TENANT, owner=OWNER, queues=queues_of(await work.queues()))
        return msgspec.json.encode(told)

    async def _of_worker(self, work: RemoteWork, parts: Sequence[str], sent: bytes) -> Any:
        if not parts:
            given = msgspec.structs.asdict(msgspec.json.decode(sent, type=Registration))
            return registered((await work.register(**given))[0])
        worker_id, what = parts[0], parts[1] if len(parts) > 1 else "leave"
        if what == "heartbeat":
            said = msgspec.json.decode(sent, type=Heartbeat)
            return registered(await work.beat(worker_id, busy=said.busy, report=said.report))
        if what in ("drain", "leave"):
            return registered(await getattr(work, what)(worker_id))
        return await getattr(self, f"_{what}")(work, worker_id, msgspec.json.decode(sent, type=BODIES[what]))

    async def _claim(self, work: RemoteWork, worker_id: str, body: ClaimRequest) -> dict[str, Any]:
        asked: dict[str, Any] = {"request": body.request_id, "after": body.after, "run": body.run_id}
        claims = await work.claim(worker_id, body, wait_seconds=0.0, **asked)
        return {"claims": [claimed(claim, body.lease_us, row=await work.opened(claim)) for claim in claims]}

    async def _renew(self, work: RemoteWork, worker_id: str, body: RenewRequest) -> dict[str, Any]:
        leases = [Lease(TENANT, one.run_id, one.no, one.fence, one.lease_us) for one in body.leases]
        return {"renewed": await work.renew(worker_id, leases)}

    async def _report(self, work: RemoteWork, worker_id: str, body: ReportRequest) -> dict[str, Any]:
        reports = [
            Report(
                run_id=one.run_id,
                no=one.no,
                fence=one.fence,
                outcome=outcome_of(one.outcome.given()),
                streams=one.ends(),
            )
            for one in body.reports
        ]
        replies, claims = await work.report(worker_id, reports, body.claim, request=body.request_id)
        lease = None if body.claim is None else body.claim.lease_us
        told = [claimed(claim, lease, row=await work.opened(claim)) for claim in claims]
        return {"replies": [reply_of(one) for one in replies], "claims": told}

    async def _checkpoint(self, work: RemoteWork, worker_id: str, body: CheckpointRequest) -> dict[str, Any]:
        given = {"run_id": body.run_id, "no": body.no, "fence": body.fence, "name": body.name}
        return {"reply": reply_of(await work.checkpoint(worker_id, **given, value=body.encoded()))}  # type: ignore[arg-type]

    async def _streams(self, work: RemoteWork, worker_id: str, body: StreamsRequest) -> dict[str, Any]:
        parts = [one.part(body.fence) for one in body.streams]
        await work.write(worker_id, body, parts)
        return {"written": sum(one.count for one in parts)}

    async def _checkpoints(self, work: RemoteWork, worker_id: str, body: CheckpointsRequest) -> Any:
        return recorded_checkpoints(await work.checkpoints(worker_id, body, (body.seq, body.name)))

    async def _calls(self, work: RemoteWork, worker_id: str, body: CallsRequest) -> Any:
        return recorded(await work.calls(worker_id, body, start=body.start, until=body.until))

    async def _evidence(self, work: RemoteWork, worker_id: str, body: EvidenceRequest) -> dict[str, Any]:
        found = [(one.run_id, one.no, one.fence, msgspec.json.encode(one.evidence)) for one in body.evidence]
        return {"kept": await work.evidence(worker_id, found)}

    async def _inputs(self, work: RemoteWork, worker_id: str, body: InputsRequest) -> dict[str, Any]:
        details = await work.details(worker_id, [one.run_id for one in body.runs if one.details])
        wants = [(one.run_id, no) for one in body.runs for no in one.outputs]
        outputs = await work.outputs(worker_id, wants) if wants else {}
        told = [
            run_data(
                one.run_id,
                details.get(one.run_id),
                [(no, outputs.get((one.run_id, no))) for no in one.outputs],
                await work.states(worker_id, one.run_id) if one.states else None,
            )
            for one in body.runs
        ]
        return {"runs": told}


BODIES: dict[str, type] = {
    "claim": ClaimRequest,
    "renew": RenewRequest,
    "report": ReportRequest,
    "checkpoint": CheckpointRequest,
    "checkpoints": CheckpointsRequest,
    "calls": CallsRequest,
    "evidence": EvidenceRequest,
    "inputs": InputsRequest,
    "streams": StreamsRequest,
}


class WatchedRemote(RemoteTransactor):
    """The real one, which also records the replies to its worker."""

    def __init__(self, stage: Stage, channel: Channel) -> None:
        super().__init__(channel, TENANT)
        self._ledger = stage.ledger

    async def report(self, events: Sequence[StepReported], claimer: Claimer | None) -> tuple[list[Answer], list[Claim]]:
        replies, claims = await super().report(events, claimer)
        self._ledger.replied(events, replies, claims, claimer)
        accepted = [event for event, one in zip(events, replies, strict=True) if isinstance(one, Accepted)]
        self._ledger.met["remote: a report that was accepted"] += len(accepted)
        suspended = [event for event in accepted if isinstance(event.outcome, AskedCalls)]
        self._ledger.met["remote: a flow that was suspended"] += len(suspended)
        return replies, claims


def remote_parts(stage: Stage, server: Server, process: Process, key: Credential) -> dict[str, Any]:
    """What a remote worker has instead of a database."""
    channel = Channel(SimulatedService(stage, server, process, key))
    transactor = WatchedRemote(stage, channel)
    return {
        "transactor": transactor,
        "owner": OWNER,
        "membership": partial(RemoteMembership, channel, transactor.remote.notifier),
    }
