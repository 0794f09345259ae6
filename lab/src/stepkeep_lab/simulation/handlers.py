"""Simulated user code: handlers that complete, fail, hang, wait, emit, or end their whole worker.

The behaviour of an attempt is drawn from a hash of seed, run, step and fence, so that it does not depend on other
events. Handlers are ordinary registered coroutines and run through the real executor; `SimulatedRunner` runs them.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from contextvars import Context as Variables
from contextvars import ContextVar
from random import Random
from typing import TYPE_CHECKING, Any

from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.kernel.definition import Handler
from stepkeep.kernel.machine.outcomes import Outcome, Stopped
from stepkeep.kernel.machine.states import Category, ErrorClass
from stepkeep.worker.answers import StepError, WaitFor, then
from stepkeep.worker.attempts import results
from stepkeep.worker.attempts.executor import EndedJobs, Job, PoolKind
from stepkeep.worker.attempts.payloads import MAX_RESULT, encode
from stepkeep.worker.context import Context, Woken
from stepkeep.worker.executors.flow import FlowExecutor
from stepkeep.worker.flows.ahead import go_ahead
from stepkeep.worker.flows.calls import CallFailed
from stepkeep.worker.flows.context import FlowContext
from stepkeep.worker.flows.replay import Flow
from stepkeep.worker.settings import Settings
from stepkeep_lab.simulation.added import PLANNER, steps_of
from stepkeep_lab.simulation.definitions import CAPABILITY, EVENTS, EXACT, HANDLERS
from stepkeep_lab.simulation.faults import Fault
from stepkeep_lab.simulation.flows import FAILED, FLOW, OTHER, play
from stepkeep_lab.simulation.gathering import draw_takes, fits
from stepkeep_lab.simulation.loop import Process, SimulationOver, current
from stepkeep_lab.simulation.successors import go_on

if TYPE_CHECKING:
    from stepkeep_lab.simulation.stage import Stage

holding: ContextVar[Job] = ContextVar("holding")
SECOND = 1_000_000


def make_registry(stage: Stage, *, remote: bool = False, other_code: bool = False) -> Registry:
    """The handlers that definitions name. A remote worker has none that need a database. With `other_code`, flows make
    another call first."""

    async def act(ctx: Context, value: Any = None, **_: Any) -> Any:
        return await Acting(stage, ctx, holding.get()).go(value)

    async def plan(ctx: Context, drawn: int) -> Any:
        answer = await Acting(stage, ctx, holding.get()).go(None)
        return answer if isinstance(answer, WaitFor) else then(*steps_of(drawn), output=answer)

    registry = Registry()
    for name in (*HANDLERS, "undo"):
        registry.register(HandlerSpec(name=name, function=act))

    async def flow(ctx: FlowContext, drawn: int, child: str = "", lasts: int = 0) -> list[Any]:
        turn = ctx.input["n"] if lasts else 0
        told = await play(
            ctx,
            drawn + turn,
            lambda name: _in_flow(stage, ctx, name),
            child,
            follows=stage.scenario.remote > 0,
            patched=bool(stage.scenario.bias.get("patched")),
            is_limited=stage.scenario.limits > 0,
        )
        if turn < lasts:
            go_on(ctx, stage.ledger, told, Random(drawn + turn))  # noqa: S311 - chance that must come out the same again
        return told

    async def changed(ctx: FlowContext, drawn: int, child: str = "", lasts: int = 0) -> list[Any]:
        try:
            first = await ctx.step(HANDLERS[0], value=OTHER)
        except CallFailed:
            first = FAILED
        told = await flow(ctx, drawn, child, lasts)
        if drawn % 3 == 0:
            # A mistake of this code: the run holds, and no process has code that fits what it has called.
            raise LookupError("a mistake in the code of a flow")
        return [first, *told]

    registry.register(HandlerSpec(name=FLOW, function=changed if other_code else flow))
    if remote:
        return registry
    registry.register(HandlerSpec(name=EXACT, function=act, transactional=True))
    registry.register(HandlerSpec(name=PLANNER, function=plan))
    return registry


async def _in_flow(stage: Stage, ctx: FlowContext, name: str) -> None:
    """A checkpoint of a flow, under the claim that it goes on with."""
    step = holding.get().claim.step
    place = (ctx.run_id, step.no, name)

    def work() -> Any:
        fence = holding.get().claim.step.fence
        stage.checkpoints.begin(place, fence)
        return stage.checkpoints.make(place, fence)

    stage.checkpoints.give(place, await ctx.once(name, work))


class Acting:
    """One attempt of one handler."""

    def __init__(self, stage: Stage, ctx: Context, job: Job) -> None:
        self.stage, self.ctx, self.job = stage, ctx, job
        self.step = job.claim.step
        self.place = (job.claim.run_id, self.step.no, self.step.fence)
        self.random = stage.random(f"handler:{self.place}")

    async def go(self, value: Any) -> Any:
        stage, ctx, chance, scenario = self.stage, self.ctx, self.random.random, self.stage.scenario
        ledger = stage.ledger
        if value is not None:
            ledger.seen_inputs.append((ctx.run_id, self.step.no, ctx.step, value))
        if ctx.completion_token is not None:
            ledger.issue(ctx.run_id, self.step.no, ctx.completion_token)
        if not scenario.alike:
            await asyncio.sleep(self.random.choice((0.0, 0.1, 0.5, 2.0, 6.0)) * chance() * scenario.work)
        stage.act(self.place, ctx.idempotency_key)
        if ctx.connection is None:
            drawn = stage.random(f"checkpoints:{self.place[:2]}")
            pace = 0.0 if scenario.alike else 1.0
            await stage.checkpoints.use(ctx, self.step.no, self.step.fence, drawn, pace)
        if ctx.connection is not None:
            ctx.connection.execute(f"{ctx.run_id} {self.step.no} {self.step.fence}")
        if stage.chaos:
            await self._misbehave()
        if chance() < scenario.emit:
            ctx.cost(usd=0.5)
            ctx.emit("told", list(self.place))
        if ctx.woken_by is not None:
            self._look_who_woke(ctx.woken_by)
        undoing = ctx.undoing or ctx.connection is not None
        if not undoing and ctx.woken_by is None and chance() < scenario.wait:
            return self._wait()
        ledger.emitted[self.place] = [one.payload for one in ctx.emitted]
        answer = {"step": ctx.step, "fence": self.step.fence, "ok": chance() < 0.7}
        ledger.answers[self.place] = answer
        return answer

    def _look_who_woke(self, woken: Woken) -> None:
        """A handler learns what it asked for, and after its first wait about every message that the wait took."""
        ledger, tables, (run_id, no, _) = self.stage.ledger, self.stage.database.tables, self.place
        waits = ledger.waits[run_id, no]
        if not any(fits(one, woken) for one in waits):
            ledger.violation(f"promise 5: step {self.place} was woken by {woken}, and asked for something else")
        elif len(waits) == 1:
            taken = sum(message.consumed_by == no for message in tables.messages[self.ctx.tenant, run_id].values())
            told = len(woken.payload) if isinstance(woken.payload, list) else int(not woken.timed_out)
            if taken != told:
                ledger.violation(f"promise 5: step {self.place} took {taken} messages, and learns of {told}")

    def _wait(self) -> WaitFor:
        chance = self.random.random
        timeout = self.random.choice((None, 5 * SECOND))
        said = (("asked", list(self.place)),) if chance() < 0.5 else ()
        self.stage.ledger.emitted[self.place] = [
            *(one.payload for one in self.ctx.emitted),
            *(encode(payload, what="it") for _, payload in said),
        ]
        takes = draw_takes(self.stage.random(f"takes:{self.place}"))
        asked = WaitFor(
            event=self.random.choice(EVENTS),
            timeout=timeout,
            emit=said,
            takes_timeouts=timeout is None or chance() < 0.6,
            where=takes.get("accepts"),
            count=takes.get("count"),
            until=takes.get("enough"),
        )
        self.stage.ledger.waits[self.place[:2]].append(asked)
        return asked

    async def _misbehave(self) -> None:
        stage, scenario, chance = self.stage, self.stage.scenario, self.random.random
        if stage.random(f"poison:{self.place[:2]}").random() < scenario.poison:
            stage.log.note(Fault.POISON, str(self.place))
            stage.kill(current.get())
            await asyncio.sleep(3600)
        if chance() < scenario.hang:
            stage.log.note(Fault.HANDLER_HUNG, str(self.place))
            await asyncio.sleep(60)
        if chance() < scenario.deaf:
            stage.log.note(Fault.HANDLER_DEAF, str(self.place))
            await self._ignore_everybody(stage.loop.time() + 20 * chance())
        if chance() < scenario.fail:
            stage.log.note(Fault.HANDLER_FAILED, str(self.place))
            self._fail()

    async def _ignore_everybody(self, until: float) -> None:
        """As a thread would: it cannot be stopped."""
        loop = self.stage.loop
        while loop.time() < until:
            try:
                await asyncio.sleep(until - loop.time())
            except asyncio.CancelledError:
                continue

    def _fail(self) -> None:
        if self.random.random() < 0.3:
            raise RuntimeError("something broke")
        delay = self.random.choice((None, None, None, 2 * SECOND))
        if delay is not None:
            self.stage.ledger.asked_delay.add(self.place)
        category = self.random.choice(list(Category) + [Category.TRANSIENT] * 8)
        final = self.random.random() < 0.1
        # Not drawn from the same numbers, so that earlier seeds keep their meaning.
        drawn = self.stage.random(f"error class:{self.place}")
        error_class = drawn.choice((None, *ErrorClass))
        raise StepError("it went wrong", category=category, delay=delay, final=final, error_class=error_class)


def _is_blocking(job: Job) -> bool:
    """Transactional steps and the rules of runs; everything else here is a coroutine."""
    executor = job.claim.planned.executor
    return not isinstance(executor, Handler) or executor.name == EXACT


class SimulatedRunner:
    """Runs handlers on the virtual loop, in the process of their worker."""

    def __init__(self, stage: Stage, process: Process, settings: Settings, capabilities: frozenset[str]) -> None:
        self._stage, self._process = stage, process
        self._settings, self._capabilities = settings, capabilities
        self._finished: Callable[[EndedJobs], None] = lambda batch: None
        self._running: dict[Job, asyncio.Task[None]] = {}
        self.held: Callable[[], int] = lambda: 0

    def open(self, finished: Callable[[EndedJobs], None], changed: Callable[[], None] = lambda: None) -> None:
        self._finished = finished

    @property
    def unable(self) -> frozenset[PoolKind]:
        return frozenset()

    def check(self) -> None:
        """Nothing here breaks by itself."""

    def use_context(self, context: Variables) -> None:
        """Simulated handlers have a context of their own."""

    def start(self, jobs: Sequence[Job]) -> None:
        ledger = self._stage.ledger
        for job in jobs:
            self._running[job] = asyncio.get_running_loop().create_task(self._run(job))
            if not self._capabilities.issuperset(job.claim.planned.definition.capabilities):
                ledger.violation(f"{self._process.name} runs {job.claim.planned.name}, which needs {CAPABILITY}")
        self.check_slots()

    def check_slots(self) -> None:
        """I13: a worker never runs or holds more than it has slots, nor more that is blocking than it has threads."""
        slots, threads = self._settings.concurrency, self._settings.pool
        if max(len(self._running), self.held()) > slots:
            held = f"runs {len(self._running)} and holds {self.held()}"
            self._stage.ledger.violation(f"I13: {self._process.name} {held} of at most {slots}")
        if threads < slots and (blocking := sum(map(_is_blocking, self._running))) > threads:
            said = f"runs {blocking} that have something to themselves"
            self._stage.ledger.violation(f"I13: {self._process.name} {said}, of at most {threads}")

    def stop(self, job: Job) -> None:
        task = self._running.get(job)
        if task is not None and job.begun:
            task.cancel()

    def close(self) -> None:
        for task in list(self._running.values()):
            task.cancel()

    def _note_flow(self, job: Job, answer: Any) -> None:
        """A flow has returned, under the claim that it went on with last."""
        claim = job.claim
        place = (claim.run_id, claim.step.no, claim.step.fence)
        self._stage.act(place, job.make_context(kind=FlowContext).idempotency_key)
        # A worker that stood still may run ahead of a claim that another one has got: what it says goes nowhere.
        if place not in self._stage.ledger.accepted:
            self._stage.ledger.answers[place] = answer
        self._stage.ledger.met["a flow that returned"] += 1

    async def _run(self, job: Job) -> None:
        holding.set(job)
        job.begun = True
        outcome: Outcome
        try:
            if job.cancelled.why is not None:
                outcome = Stopped()
            else:
                if job.prepared.is_rules:
                    await asyncio.sleep(self._stage.judging_time(job))
                answer = job.prepared.executor.run(job)
                if inspect.isawaitable(answer):
                    answer = await answer
                if job.prepared.is_flow and not isinstance(answer, Outcome):
                    self._note_flow(job, answer)
                outcome = results.outcome_of_return(
                    answer, job.context, MAX_RESULT, may_be_outcome=job.prepared.spec is None or job.prepared.is_flow
                )
        except (SimulationOver, GeneratorExit):
            raise
        except BaseException as problem:  # noqa: BLE001 - whatever user code raises ends its attempt
            outcome = results.outcome_of_exception(problem, job.context, job.cancelled, job.prepared.default_category)
        del self._running[job]
        ended = [(job, results.attach_token_digest(results.check_output(outcome, job), job))]
        go_ahead(ended, asyncio.get_running_loop().time, self._go_ahead)
        self._finished(ended)

    def _go_ahead(self, job: Job, flow: Flow) -> Outcome:
        """As the pool of the handlers' loop does it."""
        executor = job.prepared.executor
        assert isinstance(executor, FlowExecutor)
        ledger = self._stage.ledger
        ledger.met["a flow that went on ahead"] += 1
        ledger.is_ahead = True
        try:
            answer = executor.go_ahead(job, flow)
            if not isinstance(answer, Outcome) and not flow.asks_for_checkpoint:
                self._note_flow(job, answer)
            return results.outcome_of_return(answer, job.context, MAX_RESULT, may_be_outcome=True)
        except Exception as problem:  # noqa: BLE001 - whatever user code raises ends its attempt
            return results.outcome_of_exception(problem, job.context, job.cancelled, job.prepared.default_category)
        finally:
            ledger.is_ahead = False
