"""OpenTelemetry spans of runs, steps and attempts, if the program has set up the SDK before it opens an engine.

The span of a run or a step is written when it ends, by the process that commits the end; its id is derived from the
run's, so that the spans of attempts in other processes can name it as their parent. It never changes a run, and an
error here is logged and costs a span. A run keeps the trace that it belongs to as its label `traceparent`. Engines make
it, `transact` and the worker call it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import sys
import threading
from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import msgspec

from stepkeep.kernel.errors import StepkeepError
from stepkeep.kernel.machine.outcomes import Completed, Outcome, Released, RulesPassed, Stopped, Waiting
from stepkeep.kernel.machine.rows import Attempt, Details, Run, Step
from stepkeep.kernel.machine.states import RUN_TERMINAL, STEP_TERMINAL, RunState, StepState
from stepkeep.operations.pipeline.plans import PlanCache
from stepkeep.store.change import Loaded, RunKey, Write
from stepkeep.store.protocol import Store

if TYPE_CHECKING:
    from stepkeep.operations.pipeline.transact import Claim

LABEL = "traceparent"

INCOMING: ContextVar[str | None] = ContextVar("stepkeep_incoming_trace", default=None)
"""The trace that came with a request."""

_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")


class Trace(NamedTuple):
    """The parts of a `traceparent`.

    >>> parse_trace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").flags
    1
    """

    trace_id: int
    span_id: int
    flags: int = 1

    def __str__(self) -> str:
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.flags:02x}"


def parse_trace(text: object) -> Trace | None:
    """The parts of a header or label; None if it is not valid, as W3C Trace Context asks for."""
    found = _FORM.fullmatch(text) if isinstance(text, str) and len(text) <= 200 else None
    if found is None or found[1] == "ff" or (found[1] == "00" and len(found[0]) != 55):
        return None
    trace = Trace(int(found[2], 16), int(found[3], 16), int(found[4], 16))
    return trace if trace.trace_id and trace.span_id else None


def trace_of(labels: bytes | None) -> Trace | None:
    """The trace of a run, from its labels (JSON)."""
    if labels is None or b'"traceparent"' not in labels:
        return None
    return parse_trace(msgspec.json.decode(labels).get(LABEL))


def root_of(run_id: str) -> Trace:
    """The trace of a run that nothing else began: its id names the trace, so that no process must be asked for it."""
    return Trace(UUID(run_id).int, run_span_id(run_id))


def run_span_id(run_id: str) -> int:
    """The id of a run's span, the same in every process."""
    return _span_id(run_id)


def step_span_id(run_id: str, no: int) -> int:
    """The id of a step's span, the same in every process."""
    return _span_id(f"{run_id}:{no}")


def _span_id(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) or 1


def current() -> str | None:
    """The trace that the caller is in: its active span, or what came with the request."""
    api: Any = sys.modules.get("opentelemetry.trace")
    if api is not None:
        context = api.get_current_span().get_span_context()
        if context.is_valid:
            return str(Trace(context.trace_id, context.span_id, int(context.trace_flags)))
    return INCOMING.get()


log = logging.getLogger(__name__)

GOOD = (Completed, RulesPassed, Waiting, Released, Stopped)
MICRO = 1_000


class ChosenIds(threading.local):
    """The ids of the next span where they are known beforehand; random ones otherwise. Each thread chooses its own."""

    span_id: int | None = None
    trace_id: int | None = None

    def __init__(self, others: Any) -> None:
        self._others = others

    def generate_span_id(self) -> int:
        chosen, self.span_id = self.span_id, None
        return int(self._others.generate_span_id()) if chosen is None else chosen

    def generate_trace_id(self) -> int:
        chosen, self.trace_id = self.trace_id, None
        return int(self._others.generate_trace_id()) if chosen is None else chosen

    def is_trace_id_random(self) -> bool:
        return False


class Spans:
    """The spans that one process writes."""

    def __init__(self, tracer: Any, store: Store, plans: PlanCache) -> None:
        from opentelemetry import trace

        self._api, self._tracer, self._store, self._plans = trace, tracer, store, plans
        self._ids = tracer.id_generator
        if not isinstance(self._ids, ChosenIds):
            self._ids = tracer.id_generator = ChosenIds(tracer.id_generator)
        self._writing: set[asyncio.Task[None]] = set()

    async def written(self) -> None:
        """Wait until the spans of everything committed so far are handed to the SDK."""
        while self._writing:
            await asyncio.gather(*self._writing, return_exceptions=True)

    # -- attempts ----------------------------------------------------------------------------------------------------
    def attempt(self, claim: Claim, labels: bytes | None, worker: str) -> Any:
        """The span of an attempt, which begins now."""
        trace = trace_of(labels) or root_of(claim.run_id)
        number = claim.step.attempts + 1
        return self._tracer.start_span(
            f"attempt {claim.planned.name}",
            context=self._under(trace, step_span_id(claim.run_id, claim.step.no)),
            attributes={
                "stepkeep.run_id": claim.run_id,
                "stepkeep.tenant": claim.tenant,
                "stepkeep.workflow": claim.plan.definition.name,
                "stepkeep.step": claim.planned.name,
                "stepkeep.attempt": number,
                "stepkeep.worker": worker,
            },
        )

    def end(self, span: Any, outcome: Outcome) -> None:
        """The attempt of this span has ended. Texts of errors are left to the record of the run."""
        if not span.is_recording():
            return
        span.set_attribute("stepkeep.outcome", type(outcome).__struct_config__.tag or type(outcome).__name__.lower())
        category = getattr(outcome, "category", None)
        if category is not None:
            span.set_attribute("stepkeep.category", str(category))
        if not isinstance(outcome, GOOD):
            span.set_status(self._api.StatusCode.ERROR, str(category or ""))
        span.end()

    # -- steps and runs ----------------------------------------------------------------------------------------------
    def committed(self, write: Write, loaded: Loaded) -> None:
        """Write the spans of the runs and steps that a transaction ended."""
        runs = {(change.run.tenant, change.run.id): change.run for change in write.runs}
        steps = [step for step in write.steps if step.state in STEP_TERMINAL and _has_ended(step, loaded)]
        over = [run for key, run in runs.items() if run.state in RUN_TERMINAL and _was_live(key, loaded)]
        if steps or over:
            task = asyncio.get_running_loop().create_task(self._write(runs, over, steps, list(write.attempts)))
            self._writing.add(task)
            task.add_done_callback(self._writing.discard)

    async def _write(
        self, runs: dict[RunKey, Run], over: Sequence[Run], steps: Sequence[Step], attempts: list[Attempt]
    ) -> None:
        try:
            details = await self._store.read_details(list({(row.tenant, row.run_id) for row in steps} | set(runs)))
            for step in steps:
                key = (step.tenant, step.run_id)
                if step.attempts:  # those before the last one
                    attempts = [*attempts, *await self._store.read_attempts(*key)]
                if key in details:
                    self._step(step, runs[key], details[key], attempts)
            for run in over:
                if (run.tenant, run.id) in details:
                    self._run(run, details[run.tenant, run.id])
        except StepkeepError as problem:
            log.warning("the spans of %d steps and %d runs are lost: %s", len(steps), len(over), problem)

    def _step(self, step: Step, run: Run, details: Details, attempts: Sequence[Attempt]) -> None:
        own = {one.fence: one.started_at for one in attempts if (one.run_id, one.no) == (step.run_id, step.no)}
        if not own and step.state in (StepState.SKIPPED, StepState.CANCELLED):
            return
        plan = self._plans.get(run.definition_id)
        name = str(step.no) if plan is None else plan.of(step).name
        began = min(own.values(), default=run.moved_at)
        trace = trace_of(details.labels) or root_of(run.id)
        self._write_span(
            f"step {name}",
            self._under(trace, run_span_id(run.id)),
            step_span_id(run.id, step.no),
            (began, run.moved_at),
            {
                "stepkeep.run_id": run.id,
                "stepkeep.tenant": run.tenant,
                "stepkeep.workflow": details.workflow,
                "stepkeep.step": name,
                "stepkeep.state": str(step.state),
                "stepkeep.attempts": len(own),
            },
            is_good=step.state is not StepState.FAILED,
        )

    def _run(self, run: Run, details: Details) -> None:
        own = run_span_id(run.id)
        trace = trace_of(details.labels) or root_of(run.id)
        context = self._api.set_span_in_context(self._api.INVALID_SPAN)
        if trace.span_id == own:
            self._ids.trace_id = trace.trace_id
        else:
            context = self._under(trace, trace.span_id)
        self._write_span(
            f"run {details.workflow}",
            context,
            own,
            (run.started_at or details.created_at, run.ended_at or run.moved_at),
            {
                "stepkeep.run_id": run.id,
                "stepkeep.tenant": run.tenant,
                "stepkeep.workflow": details.workflow,
                "stepkeep.version": details.version,
                "stepkeep.state": str(run.state),
            },
            is_good=run.state is RunState.SUCCEEDED,
        )

    def _write_span(
        self, name: str, context: Any, span_id: int, times: tuple[int, int], about: dict[str, Any], *, is_good: bool
    ) -> None:
        began, ended = times
        self._ids.span_id = span_id
        span = self._tracer.start_span(name, context=context, start_time=began * MICRO, attributes=about)
        if not is_good:
            span.set_status(self._api.StatusCode.ERROR)
        span.end(end_time=max(began, ended) * MICRO)

    def _under(self, trace: Trace, span_id: int) -> Any:
        """A context whose active span has this id."""
        api = self._api
        parent = api.SpanContext(trace.trace_id, span_id, is_remote=True, trace_flags=api.TraceFlags(trace.flags))
        return api.set_span_in_context(api.NonRecordingSpan(parent))


def find_spans(store: Store, plans: PlanCache) -> Spans | None:
    """The spans of this process, if its program has set up the SDK; nothing is imported otherwise."""
    sdk: Any = sys.modules.get("opentelemetry.sdk.trace")
    if sdk is None:
        return None
    from opentelemetry import trace

    provider = trace.get_tracer_provider()
    if not isinstance(provider, sdk.TracerProvider):
        return None
    tracer = provider.get_tracer("stepkeep.engine")
    return Spans(tracer, store, plans) if hasattr(tracer, "id_generator") else None


def activate(span: Any) -> None:
    """Make a span the active one for the rest of this context, which belongs to one attempt."""
    from opentelemetry import context, trace

    context.attach(trace.set_span_in_context(span))


def _has_ended(step: Step, loaded: Loaded) -> bool:
    before = loaded.steps.get((step.tenant, step.run_id), {}).get(step.no)
    return before is not None and before.state not in STEP_TERMINAL


def _was_live(key: RunKey, loaded: Loaded) -> bool:
    before = loaded.runs.get(key)
    return before is not None and before.state not in RUN_TERMINAL
