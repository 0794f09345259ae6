"""Runs flows: starts or goes on with the coroutine, and returns what it came to, or that it awaits calls.

It runs on the handlers' loop and waits for checkpoints of the flow alone: a flow that awaits a call is suspended. The
worker keeps the suspended coroutine on the job, and may give it back with the next claim; otherwise it is replayed.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Mapping
from typing import Any

import msgspec

from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.edges.safe_text import is_a, type_name
from stepkeep.kernel.definition import Flow as Growth
from stepkeep.kernel.definition import Handler, OnExhausted
from stepkeep.kernel.machine.outcomes import Outcome, Released, Suspended
from stepkeep.kernel.plan import PlannedStep
from stepkeep.worker.answers import WaitFor
from stepkeep.worker.attempts.classify import BindingError
from stepkeep.worker.attempts.executor import Job, PoolKind
from stepkeep.worker.attempts.misfits import MisfitError
from stepkeep.worker.attempts.once import Checkpoints, answer_of, encoded
from stepkeep.worker.attempts.payloads import storable_text
from stepkeep.worker.code import build_of
from stepkeep.worker.context import Context
from stepkeep.worker.current import entered
from stepkeep.worker.executors.python import PythonExecutor, check_fit, make_call
from stepkeep.worker.flows.calls import NonDeterministic, Templates, failed_calls, is_meant
from stepkeep.worker.flows.context import FlowContext
from stepkeep.worker.flows.loop import refusal
from stepkeep.worker.flows.replay import Flow, Inline, began_at, code_of

log = logging.getLogger("stepkeep.worker")

MOST_BLAMED = 1_000
"""How many calls a flow names for which it failed."""

_decode = msgspec.json.Decoder().decode


def _plain(answer: Any) -> Any:
    """What a flow returned, if that is a value: records of the engine and waits are for its worker alone."""
    if is_a(answer, WaitFor, Outcome):
        raise refusal(f"returned {type_name(answer)}. Return a value; write `await ctx.wait_for(...)` to wait")
    return answer


class FlowExecutor:
    """Runs the steps whose handler is a flow."""

    def __init__(self, registry: Registry, shared: Mapping[str, Any] | None = None) -> None:
        self._python, self._shared, self._registry = PythonExecutor(registry, shared), shared, registry
        self._templates = Templates(registry)

    def spec(self, planned: PlannedStep) -> HandlerSpec:
        """The function of a flow, in the version that its definition asks for."""
        executor, growth = planned.executor, planned.kind.growth
        assert isinstance(executor, Handler)
        assert isinstance(growth, Growth)
        wanted = None if growth.version is msgspec.UNSET else growth.version
        spec = self._registry.get(executor.name, wanted)
        if spec is None and executor.name in self._registry.flows:
            has = ", ".join(map(str, sorted(self._registry.flows[executor.name])))
            said = f"flow {executor.name} is here in version {has}, and its run needs version {wanted}"
            raise MisfitError(executor.name, said, is_usual=True)
        spec = spec or self._python.spec(planned)
        if spec.runs_in != "async" or not spec.signature.takes_context:
            raise BindingError(f"handler {spec.name} is no flow: write `async def {spec.name}(ctx, ...)`.")
        return spec

    def pool(self, planned: PlannedStep) -> PoolKind:
        return PoolKind.LOOP

    async def run(self, job: Job) -> Any:
        """What the function returned, or Suspended. Raises what it raised."""
        flow, planned = job.calls.flow, job.claim.planned
        assert planned.segment is not None
        job.calls.flow = None
        checkpoints = job.checkpoints()

        async def record(asked: Inline) -> None:
            await _settle(asked, checkpoints)

        if flow is None:
            flow = self._new(job)
        else:
            job.renew_context(flow.context, keeps_report=flow.is_ahead)
        context = flow.context
        entered(lambda: context)
        try:
            if not flow.has_begun:
                await flow.start(lambda: self._coroutine(job, context), record)
            await flow.feed(job.calls.recorded, planned.segment.first, record)
            return _answer_of(job, flow)
        except NonDeterministic as problem:
            return self._unfit(job, problem)
        except Exception as problem:
            self._note_own_error(job, problem)
            raise
        finally:
            if job.calls.flow is not flow:
                flow.close()

    def go_ahead(self, job: Job, flow: Flow) -> Any:
        """The same for a flow that is fed ends of calls which are not on record yet."""
        segment = job.claim.planned.segment
        assert segment is not None
        try:
            flow.feed_ahead(job.calls.recorded, segment.first)
            return None if flow.asks_for_checkpoint else _answer_of(job, flow)
        except NonDeterministic as problem:
            return self._unfit(job, problem)
        except Exception as problem:
            self._note_own_error(job, problem)
            raise

    def _unfit(self, job: Job, problem: NonDeterministic) -> Released:
        """The code here does not fit what is recorded: no failure of the run. Other code may."""
        log.warning("%s holds: %s", job.title, problem)
        return Released(reason=storable_text(str(problem)), unfit=build_of(self.spec(job.claim.planned).function))

    def _note_own_error(self, job: Job, problem: Exception) -> None:
        """A flow whose own code failed for good holds for other code, unless its definition lets it fail.

        One that fails for calls says for which ones: a retry makes these again.
        """
        job.calls.blames = tuple(sorted(failed_calls(problem))[:MOST_BLAMED])
        holds = job.claim.planned.definition.on_exhausted is not OnExhausted.FAIL
        if holds and not is_meant(problem):
            job.calls.unfit = build_of(self.spec(job.claim.planned).function)

    def _new(self, job: Job) -> Flow:
        """The flow before its first call; what it is given first are the ends of calls that are on record."""
        claim, spec = job.claim, self.spec(job.claim.planned)
        note = claim.step.note
        context = job.make_context(self._shared, FlowContext)
        assert isinstance(context, FlowContext)
        grown = None if note is None else note.grown
        flow = Flow(claim.planned.name, code_of(spec.function), context, job.calls.known, grown, began_at(claim.run_id))
        context.bind(flow, self._templates, claim.plan.definition)
        return flow

    def _coroutine(self, job: Job, context: Context) -> Coroutine[Any, Any, Any]:
        spec, inputs = self.spec(job.claim.planned), job.prepared.render(job)
        check_fit(spec, inputs)
        args, kwargs = spec.signature.arguments(context, inputs)
        made: Coroutine[Any, Any, Any] = make_call(spec.function, args, kwargs, context)
        return made


def _answer_of(job: Job, flow: Flow) -> Any:
    if flow.is_done:
        answer = _plain(flow.result())
        flow.close()
        return answer
    job.calls.asked = tuple(flow.new_calls())
    job.calls.flow = flow
    context = flow.context
    cancels = flow.cancels()
    return Suspended(seen=len(flow.given), code=flow.code, cancels=cancels, cost=context.spent, emit=context.emitted)


async def _settle(asked: Inline, checkpoints: Checkpoints) -> None:
    """Give a flow the value of a checkpoint. What its function raises goes to the flow; a lost lease ends it all."""
    found = await answer_of(checkpoints.find(asked.name))
    if found is None:
        try:
            found = encoded(asked.name, await answer_of(asked.call()), checkpoints.most_bytes)
        except Exception as problem:  # noqa: BLE001 - whatever the function raises is for the flow to handle
            asked.future.set_exception(problem)
            return
        if asked.is_kept:
            await answer_of(checkpoints.record(asked.name, found))
    asked.future.settle(_decode(found))
