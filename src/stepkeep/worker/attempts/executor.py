"""The contract between the worker and everything that can run a step.

An executor (`executors/`) defines what runs for a step. A pool (`pools/`) defines where: on the handlers' event loop,
in a thread, or in a process. Neither knows the database. `Job` is one attempt on its way through both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import msgspec
from msgspec.structs import replace

from stepkeep.definition.expressions.json_schema import Shape
from stepkeep.definition.python.registry import HandlerSpec
from stepkeep.kernel.compiler import ConditionView
from stepkeep.kernel.definition import Executor as Defined
from stepkeep.kernel.machine.outcomes import Outcome
from stepkeep.kernel.machine.rows import Details
from stepkeep.kernel.machine.states import Category, Phase, StepState
from stepkeep.kernel.plan import PlannedStep
from stepkeep.network.allowing import AllowList
from stepkeep.store.streams import Holder
from stepkeep.worker.attempts.once import Checkpoints, NoCheckpoints
from stepkeep.worker.attempts.streams import StreamKeeper, WrittenStreams
from stepkeep.worker.cancellation import Cancellation
from stepkeep.worker.context import Context, Outputs, Woken, renew

if TYPE_CHECKING:
    from stepkeep.operations.pipeline.call_queues import NewStep
    from stepkeep.operations.pipeline.transact import Claim
    from stepkeep.worker.attempts.checkpoints import CheckpointKeeper
    from stepkeep.worker.attempts.rule_checks import Check
    from stepkeep.worker.flows.ahead import Resumed
    from stepkeep.worker.flows.calls import Recorded
    from stepkeep.worker.flows.keeper import Kept
    from stepkeep.worker.flows.replay import Flow
    from stepkeep.worker.pools.fitness import Fitness

LAST = "[last]"
"""What the output of the element before is called among the outputs of a job. No step has such a name."""


class PoolKind(StrEnum):
    LOOP = "loop"
    THREAD = "thread"
    RULES = "rules"
    PROCESS = "process"


class Call(NamedTuple):
    """A function with its arguments; enough to make the call in another process."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Executor(Protocol):
    """One kind of handler."""

    def pool(self, planned: PlannedStep) -> PoolKind:
        """The kind of pool in which this step runs."""
        ...

    def run(self, job: Job) -> Any:
        """Run the step. Returns an answer (or an outcome), or on the loop an awaitable of one. May raise anything."""
        ...


@runtime_checkable
class CallExecutor(Executor, Protocol):
    """An executor that makes one function call, which can therefore run in another process."""

    def call(self, job: Job) -> Call:
        """The call of an attempt. Raises BindingError if the inputs do not match."""
        ...


Done = Callable[[Sequence[tuple["Job", Outcome]]], None]
"""Jobs that ended, with their outcomes."""

EndedJobs = list[tuple["Job", Outcome]]

Report = tuple["Job", Outcome]
"""The outcome of one job, on its way to the database."""


class Pool(Protocol):
    """Where jobs run. Each started job is reported to `done`, from any thread, whatever its handler does. A job that
    the pool cannot run is reported as `Released`. A duplicate report is harmless."""

    fitness: Fitness
    """Whether the pool can run handlers."""

    def open(self, done: Done) -> None: ...

    def start(self, jobs: Sequence[Job]) -> None:
        """Start all of these, with one switch between threads. Raises nothing."""
        ...

    def check(self) -> None:
        """Check that handlers still make progress. Called periodically, on the worker's loop."""
        ...

    def stop(self, job: Job) -> None:
        """End this job as soon as possible; a thread cannot be ended and continues."""
        ...

    def close(self) -> None:
        """End everything and free all resources."""
        ...


class Prepared(Protocol):
    """Everything known about a step before its attempts. `needs_…` tells what must be read for one."""

    planned: PlannedStep
    executor: Executor
    spec: HandlerSpec | None
    pool: PoolKind
    rules: tuple[Check, ...]
    is_rules: bool
    pre: Prepared | None
    """The rules that are evaluated before the handler runs."""
    is_manual: bool
    is_transactional: bool
    checks_inputs: bool
    """Inputs are rendered and validated even for a handler that takes none."""
    output_shape: Shape | None
    """What the output of an attempt must match before it counts."""
    needs_details: bool
    needs_outputs: tuple[tuple[str, int], ...]
    needs_states: bool
    needs_secrets: frozenset[str]
    """The names of the secrets that an attempt reads."""
    needs_network: bool
    """Whether the allow list of the tenant must be read before an attempt."""
    is_flow: bool
    """Whether its handler is a flow, which must be given what is recorded of its calls."""
    needs_anything: bool
    """Whether any of the six above must be loaded before an attempt."""
    runs_alone: bool
    """No other step of the same run ever runs at the same time."""
    default_category: Category
    """The category of errors that nothing else classifies."""

    @property
    def upstream_steps(self) -> tuple[str, ...]:
        """The steps whose outputs this one may read."""
        ...

    def render(self, job: Job) -> Any:
        """The inputs of one attempt."""
        ...

    def render_executor(self, job: Job) -> Defined:
        """The executor's own texts (arguments, URL, headers) for one attempt."""
        ...


_decode = msgspec.json.Decoder().decode


class LoadedInputs(msgspec.Struct, eq=False):
    """What is read for an attempt before its handler runs. `Inputs` fills it."""

    details: Details | None = None
    outputs: Mapping[str, bytes | None] = {}
    states: Mapping[str, StepState] = {}
    arguments: bytes | None = None
    """The arguments of a call."""
    secrets: Mapping[str, str] | None = None
    """The values that it may read, by name."""
    allowed: AllowList | None = None
    """The allow list of its tenant, if it needs one."""
    opened: Callable[[Any], Any] | None = None
    """Opens the payload of a message, if it is sealed."""
    checks_seal: bool = False
    """Its worker has no codec, and must not run it if the input of its run is sealed."""


class FlowCalls(msgspec.Struct, eq=False):
    """The calls of a flow in one attempt of it, or for a call, the flow that made it."""

    known: tuple[Recorded, ...] = ()
    """The calls that are on record."""
    recorded: tuple[Recorded, ...] = ()
    """Those whose ends the flow is to be given."""
    flow: Flow | None = None
    """The flow itself, if it is suspended here."""
    asked: Sequence[NewStep] = ()
    """The calls that are new."""
    kept: Kept | None = None
    """The flow that made this call, if its worker keeps it."""
    resumed: Resumed | None = None
    """The attempt of that flow which goes on by the end of this call."""
    unfit: str | None = None
    """A digest of the code of the flow, if it raised by itself and may hold for other code."""
    blames: tuple[int, ...] | None = None
    """The calls for whose failure the flow failed."""


class AttemptSpan(msgspec.Struct, eq=False):
    """How an attempt is traced: its span, and the `traceparent` that its handler passes on."""

    is_traced: bool = False
    trace: str | None = None
    span: Any = None


class Job(msgspec.Struct, eq=False):
    """One attempt: its claim, its inputs and its progress. Jobs compare by identity.

    `running`: its handler runs. `reported`: its outcome is on the way, and later results are dropped. `own_output` is
    what its handler returned, while its rules are evaluated. `waiter` awaits its outcome besides the loop. `handle` is
    what its pool needs to stop it. `run_deadline` is the end of its run's timeout, by the monotonic clock. `lane` is
    the lane of its report. `gave_up`: its outcome could not be recorded, and a failure is reported instead.
    `evidence` is why it failed, as JSON, until it is written. `progressed` is called after each `ctx.progress`.
    `first` are the rules before its handler, as a job of their own, while they are evaluated.
    `keeper` records its checkpoints; a job without one records none. `stream_keeper` appends what it writes to streams.
    """

    claim: Claim
    prepared: Prepared
    attempt_deadline: float = float("inf")
    renewed_at: float = 0.0
    fetch: Callable[[Job, str], bytes | None] | None = None
    lane: int = 0
    cancelled: Cancellation = msgspec.field(default_factory=Cancellation)
    loaded: LoadedInputs = msgspec.field(default_factory=LoadedInputs)
    calls: FlowCalls = msgspec.field(default_factory=FlowCalls)
    tracing: AttemptSpan = msgspec.field(default_factory=AttemptSpan)
    context: Context | None = None
    completion_token: str | None = None
    connection: Any = None
    task: asyncio.Task[None] | None = None
    begun: bool = False
    gave_up: bool = False
    waiter: asyncio.Future[Outcome] | None = None
    handle: Any = None
    own_output: tuple[bytes | None] | None = None
    running: bool = False
    reported: bool = False
    evidence: bytes | None = None
    run_deadline: float = float("inf")
    progressed: Callable[[], None] | None = None
    first: Job | None = None
    keeper: CheckpointKeeper | None = None
    stream_keeper: StreamKeeper | None = None

    @property
    def needs_details(self) -> bool:
        return self.prepared.needs_details or self.loaded.checks_seal or self.tracing.is_traced

    @property
    def title(self) -> str:
        """The name of this attempt in logs and errors."""
        claim = self.claim
        return f"attempt {claim.step.attempts + 1} of step {claim.planned.name} of run {claim.run_id}"

    def input(self) -> Any:
        return None if self.loaded.details is None else _decode(self.loaded.details.input)

    def view(self) -> ConditionView:
        """The values that templates and rules can read."""
        planned = self.claim.planned
        own, outputs = planned.definition.name, self.loaded.outputs
        if planned.phase is Phase.UNDO and own in outputs and outputs[own] is None:
            # An undo step may have to undo a step without a result.
            outputs = {**outputs, own: b"null"}
        return ConditionView(
            run_id=self.claim.run_id,
            input=b"null" if self.loaded.details is None else self.loaded.details.input,
            outputs=outputs,
            states=self.loaded.states or {own: StepState.SUCCEEDED},
            index=planned.index,
            last=outputs.get(LAST),
        )

    def woken_by(self) -> Woken | None:
        note = self.claim.step.note
        if note is None or note.woken_by is None:
            return None
        record = _decode(note.woken_by)
        if "timeout" in record:
            gathered = record["timeout"].get("messages")
            return Woken(timed_out=True, payload=None if gathered is None else self._opened(gathered))
        message = record["message"] if "message" in record else record["last"]["message"]
        [single] = self._opened([message["payload"]])
        payload = self._opened(record["messages"]) if "messages" in record else single
        return Woken(id=message["id"], name=message["name"], payload=payload)

    def _opened(self, payloads: list[Any]) -> list[Any]:
        return payloads if self.loaded.opened is None else [self.loaded.opened(one) for one in payloads]

    def make_context(self, shared: Mapping[str, Any] | None = None, kind: type[Context] = Context) -> Context:
        """The context of this attempt, created on first use, because most handlers do not ask for it."""
        if self.context is not None:
            return self.context
        claim, details, planned = self.claim, self.loaded.details, self.claim.planned
        definition, fetch = claim.plan.definition, self.fetch
        self.context = kind(
            run_id=claim.run_id,
            tenant=claim.tenant,
            workflow=definition.name,
            version=definition.version,
            step=planned.step_name,
            undoing=planned.phase is Phase.UNDO,
            attempt=claim.step.attempts + 1,
            input=None if details is None else msgspec.Raw(details.input),
            outputs=Outputs(
                self.prepared.upstream_steps,
                self.loaded.outputs,
                None if fetch is None else lambda name: fetch(self, name),
            ),
            correlation_id="" if details is None else details.correlation_id,
            business_key=None if details is None else details.business_key,
            woken_by=self.woken_by(),
            deadline=self.attempt_deadline,
            deadline_at=claim.claimed_at + planned.timeout,
            completion_token=self.completion_token,
            cancelled=self.cancelled,
            connection=self.connection,
            shared=shared,
            progressed=self.progressed,
            trace=self.tracing.trace,
            effect_of=self._effect_of,
            key_of=None if planned.call is None else planned.call.key,
            checkpoints=self.checkpoints(),
            streams=self._written_streams(planned.kind.is_flow),
        )
        return self.context

    def renew_context(self, context: Context, *, keeps_report: bool = False) -> None:
        """Go on with the context of an earlier attempt, whose coroutine goes on here: all but the run is new.

        `keeps_report`: what it has collected is not on record, because it went on since that attempt.
        """
        self.context = context
        renew(
            context,
            attempt=self.claim.step.attempts + 1,
            deadline=self.attempt_deadline,
            deadline_at=self.claim.claimed_at + self.claim.planned.timeout,
            cancelled=self.cancelled,
            progressed=self.progressed,
            trace=self.tracing.trace,
            checkpoints=self.checkpoints(),
            fence=self.claim.step.fence,
            keeps_report=keeps_report,
        )

    def checkpoints(self) -> Checkpoints:
        """What this attempt records while it runs, and what earlier ones have recorded."""
        if self.prepared.is_transactional:
            return NoCheckpoints("a transactional step needs none: its writes and its result are one transaction")
        if self.keeper is None:
            return NoCheckpoints("rules record no checkpoints; only the handler of a step does")
        return self.keeper.of(self)

    def _written_streams(self, is_flow: bool) -> WrittenStreams:
        """What it writes to streams. A flow goes on where it was: its coroutine does."""
        keeper, is_live = self.stream_keeper, not is_flow and not self.prepared.is_transactional
        noted = None if keeper is None or not is_live else partial(keeper.note, self)
        return WrittenStreams(
            self.claim.step.fence, noted, goes_on=is_flow, log_lines=0 if keeper is None else keeper.log_lines
        )

    @property
    def streams(self) -> WrittenStreams | None:
        """What it has written to streams; None if it asked for no context."""
        return None if self.context is None else self.context.streams

    @property
    def holder(self) -> Holder:
        """By what its writes are accepted."""
        claim, step = self.claim, self.claim.step
        return Holder(claim.tenant, claim.run_id, step.no, step.fence, step.worker or 0)

    @property
    def _effect_of(self) -> str | None:
        """The run that did what an undo step undoes, if that is another one."""
        note = self.claim.step.note
        return None if note is None or note.adopted is None else note.adopted.run


def rules_job(job: Job, rules: Prepared) -> Job:
    """The rules before a handler as a job of their own, with everything that was loaded for the attempt."""
    return Job(
        job.claim,
        rules,
        job.attempt_deadline,
        job.renewed_at,
        job.fetch,
        job.lane,
        cancelled=job.cancelled,
        loaded=replace(job.loaded),
    )
