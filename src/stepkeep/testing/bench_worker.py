"""The worker of a workbench: one attempt at a time, no polling, no sleeping, the production code for everything else.

Claims, inputs, rules, outcomes and reports are the worker's own. Only its loop is replaced, and the clock is set
instead of awaited. User code runs in a thread with an event loop of its own, as in production.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, NoReturn

from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.kernel.decide.decision import Accepted, Claimer
from stepkeep.kernel.definition import SECOND, Agent, Handler
from stepkeep.kernel.errors import Refused
from stepkeep.kernel.machine.events import StepReported, TimeCame
from stepkeep.kernel.machine.outcomes import Added, Completed, Outcome, RulesPassed, Suspended, TimedOut
from stepkeep.kernel.machine.states import Phase, StepState
from stepkeep.operations.pipeline import workers
from stepkeep.operations.pipeline.call_queues import CallQueues
from stepkeep.operations.pipeline.payloads import MAX_PAYLOAD_BYTES
from stepkeep.operations.pipeline.transact import Claim, Transactor
from stepkeep.operations.remote.asked_calls import Proposed, read_proposed
from stepkeep.store.change import Lease
from stepkeep.testing.replacements import Replacement, Silence
from stepkeep.worker.attempts import results
from stepkeep.worker.attempts.checkpoints import CheckpointKeeper
from stepkeep.worker.attempts.classify import BindingError, failure_of
from stepkeep.worker.attempts.executor import Job, Prepared, rules_job
from stepkeep.worker.attempts.guard import without_secrets
from stepkeep.worker.attempts.inputs import Inputs
from stepkeep.worker.attempts.prepared import PreparedSteps
from stepkeep.worker.attempts.reporting import of_rules, of_rules_before
from stepkeep.worker.attempts.secrets import SecretReader, Secrets
from stepkeep.worker.attempts.transactional import attempt_in_transaction
from stepkeep.worker.executors.http import HttpPolicy
from stepkeep.worker.pools.handler_loop import Shared
from stepkeep.worker.runtime import Runtime
from stepkeep.worker.settings import Settings

DUE_AT_ONCE = 500
PassTime = Callable[[int], Any]


class BenchWorker:
    """Runs ready steps. `find` gives the replacement for a step; `pass_time` sets the clock."""

    def __init__(
        self,
        transactor: Transactor,
        registry: Registry,
        tenant: str,
        *,
        find: Callable[[Claim], Replacement | None],
        pass_time: PassTime,
        outside: bool,
        secrets: Callable[[str], str],
    ) -> None:
        self._transactor, self._registry, self._tenant = transactor, registry, tenant
        self._find, self._pass_time, self._outside = find, pass_time, outside
        # Requests are made with `outside` only, mostly to a server of the test's own.
        self.shared = Shared("the workbench opens no lifespan; give it with workbench.share(name=value)")
        self._codes = PreparedSteps(registry, Settings(http=HttpPolicy(allow_internal=True)), self.shared)
        self._inputs = Inputs(
            transactor.store, transactor.payloads, SecretReader(Secrets(values=secrets, environment=False))
        )
        self._checkpoints = CheckpointKeeper(transactor, self._holder, lambda job: True, _give_up)
        self._runtime = Runtime()
        self._hand = _Hand()
        self._claimer: Claimer | None = None
        self._call_queues = CallQueues(transactor.store, tenant, self._read_queues)
        self.tokens: dict[tuple[str, str], str] = {}

    async def open(self) -> None:
        self._inputs.open()
        self._checkpoints.open()
        row = await workers.register(self._transactor.store, tenant=self._tenant, app="workbench", capacity=1)
        self._claimer = Claimer(actor=row.id, worker=row.no, lease=None, slots=0, queues=frozenset())

    async def close(self) -> None:
        await self._codes.aclose()
        self._hand.close()

    # -- working -----------------------------------------------------------------------------------------------------
    async def work(self) -> None:
        """Run everything that is ready, and what becomes ready by it, one after the other."""
        await self._read_queues()
        while claims := await self._transactor.claim(self._claiming(), limit=1):
            for claim in claims:
                await self._attempt(claim)

    def _claiming(self) -> Claimer:
        assert self._claimer is not None
        return self._claimer

    def _holder(self) -> tuple[str, int]:
        return self._claiming().actor, self._claiming().worker

    async def _read_queues(self) -> None:
        """Claim from every queue that exists; calls of flows may have made new ones."""
        queues = frozenset(number for number, _ in await self._transactor.store.list_queues(self._tenant))
        mine = self._claiming()
        self._claimer = Claimer(actor=mine.actor, worker=mine.worker, lease=None, slots=0, queues=queues)

    async def sweep(self) -> bool:
        """Handle all due timers. Returns whether there were any."""
        acted = False
        while due := await self._transactor.store.find_due(DUE_AT_ONCE):
            events = [TimeCame(tenant=one.tenant, run_id=one.run_id, actor="sweep", no=one.no) for one in due]
            moved = False
            for answer in await self._transactor.submit_all(events):
                if not isinstance(answer, Accepted | Refused):
                    raise answer
                moved |= isinstance(answer, Accepted) and not answer.repeated
            if not moved:
                break
            acted = True
        return acted

    async def _attempt(self, claim: Claim) -> None:
        replacement = None if _judges(claim) else self._find(claim)
        if replacement is None:
            self._must_be_known(claim)
        try:
            code = self._codes.of(claim)
        except BindingError as problem:
            await self._report(claim, failure_of(problem))
            return
        job = Job(claim, code, keeper=self._checkpoints)
        if code.is_manual:
            job.completion_token = self._runtime.token()
            self.tokens[claim.run_id, claim.planned.name] = job.completion_token
        await self._prepare(job)
        if code.pre is not None and (refused := await self._first(job, code.pre)) is not None:
            await self._report(claim, refused)
            return
        if code.is_transactional and replacement is None:
            outcome, reply = await attempt_in_transaction(
                self._transactor, self._hand.start, job, lambda said: self._event(claim, said), lambda: True
            )
            if reply is None:
                await self._report(claim, outcome)
            return
        said = await self._run(job, replacement)
        if isinstance(said, Silence):
            await self._fall_silent(claim, said)
        else:
            await self._take_time(claim, 0 if replacement is None else replacement.takes)
            await self._report_outcome(job, self._late(claim, replacement) or said)

    async def _first(self, job: Job, pre: Prepared) -> Outcome | None:
        """The rules before the handler: the outcome of the attempt if they do not hold."""
        found = await self._judge(rules_job(job, pre))
        return None if isinstance(found, RulesPassed) else of_rules_before(found)

    async def _judge(self, job: Job) -> Outcome:
        for check in job.prepared.rules:
            if check.spec is not None and check.spec.function is stub:
                raise AssertionError(
                    f"a rule of step {job.claim.planned.name} uses {check.title}, and rules are evaluated for real. "
                    "Register a function of that name in the registry of the workbench."
                )
            if check.program is not None and check.spec is None and not self._outside:
                raise AssertionError(
                    f"a rule of step {job.claim.planned.name} runs {check.title}, a command that a test should not "
                    "really run. Give the workbench outside=True, or test the step without the rule."
                )
        found = await self._run(job, None)
        assert isinstance(found, Outcome)
        return found

    async def _run(self, job: Job, replacement: Replacement | None) -> Outcome | Silence:
        known = None if replacement is None else self._known(job.claim)

        def act() -> Any:
            return job.prepared.executor.run(job) if replacement is None else replacement.answer(job, known)

        return await self._hand.do(job, act)

    async def _report_outcome(self, job: Job, outcome: Outcome) -> None:
        """Report; if the step has rules, they are evaluated next under the same lease."""
        claim = job.claim
        if isinstance(outcome, Proposed):
            outcome, job.calls.asked = read_proposed(outcome, claim.plan, claim.planned, self._codes.registry)
        if isinstance(outcome, Suspended | Added) and job.calls.asked:
            known = self._call_queues.resolved(outcome, job.calls.asked)
            outcome = known or await self._call_queues.resolve(outcome, job.calls.asked)
        reply = await self._report(claim, results.attach_token_digest(outcome, job), judging=job.prepared.is_rules)
        if not isinstance(reply, Accepted) or job.prepared.is_rules or not isinstance(outcome, Completed):
            return
        if reply.record.get("state") != StepState.VALIDATING:
            return
        judged = Job(claim, self._codes.rules_of(claim))
        judged.own_output = (outcome.output,)
        await self._prepare(judged)
        await self._report(claim, await self._judge(judged), judging=True)

    async def _report(self, claim: Claim, outcome: Outcome, *, judging: bool = False) -> Accepted | Refused:
        outcome = of_rules(outcome) if judging else outcome
        [reply], _ = await self._transactor.report([self._event(claim, outcome)], None)
        if not isinstance(reply, Accepted | Refused):
            raise reply
        return reply

    def _event(self, claim: Claim, outcome: Outcome) -> StepReported:
        assert self._claimer is not None
        return StepReported(
            tenant=claim.tenant,
            run_id=claim.run_id,
            actor=self._claimer.actor,
            no=claim.step.no,
            fence=claim.step.fence,
            worker=self._claimer.worker,
            outcome=outcome,
        )

    # -- what a handler needs ------------------------------------------------------------------------------------------
    async def _prepare(self, job: Job) -> None:
        """Everything that a handler, a template or a rule may read, loaded beforehand."""
        claim = job.claim
        await self._inputs.load([job])
        if job.loaded.details is None:
            key = (claim.tenant, claim.run_id)
            found = await self._transactor.store.read_details([key])
            job.loaded.details = (await self._transactor.payloads.details(found))[key]
        job.fetch = self._inputs.fetch

    def _known(self, claim: Claim) -> HandlerSpec | None:
        executor = claim.planned.executor
        found = self._registry.get(executor.name) if isinstance(executor, Handler) else None
        return None if found is None or found.function is stub else found

    def _must_be_known(self, claim: Claim) -> None:
        """Production would leave such a step to another worker; a test has no other."""
        executor, name = claim.planned.executor, claim.planned.name
        if _judges(claim) or executor is None:
            return
        if isinstance(executor, Handler | Agent):
            what = "agent" if isinstance(executor, Agent) else "handler"
            table = self._registry.agent if isinstance(executor, Agent) else self._registry.get
            spec = table(executor.name)
            if spec is None or spec.function is stub:
                _unknown(name, f"the {what} {executor.name}, which is not registered here", executor.name)
        elif not self._outside:
            kind = str(executor.__struct_config__.tag)
            _unknown(name, f"a {kind} that a test should not really run", f"step={name!r}")

    # -- time ----------------------------------------------------------------------------------------------------------
    async def _take_time(self, claim: Claim, micros: int) -> None:
        """The attempt takes this long on the virtual clock, and its lease is renewed meanwhile."""
        if micros <= 0:
            return
        micros = min(micros, claim.planned.timeout)
        await self._renew(claim, micros + SECOND)
        await self._pass_time(claim.claimed_at + micros)

    async def _renew(self, claim: Claim, lease: int) -> None:
        one = Lease(claim.tenant, claim.run_id, claim.step.no, claim.step.fence, lease)
        await self._transactor.store.renew([one])

    def _late(self, claim: Claim, replacement: Replacement | None) -> TimedOut | None:
        return TimedOut() if replacement is not None and replacement.takes >= claim.planned.timeout else None

    async def _fall_silent(self, claim: Claim, how: Silence) -> None:
        if how is Silence.LOSES_WORKER:
            self._transactor.forget(claim)
            return
        await self._take_time(claim, claim.planned.timeout)
        await self._report(claim, TimedOut())


class _Hand:
    """Where user code runs: a thread, with an event loop for coroutines."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="workbench")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def do(self, job: Job, act: Callable[[], Any]) -> Outcome | Silence:
        context = copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: context.run(self._do, job, act))

    def _do(self, job: Job, act: Callable[[], Any]) -> Outcome | Silence:
        try:
            answer = act()
            if inspect.isawaitable(answer):
                answer = self._own_loop().run_until_complete(_awaited(answer))
        except Exception as problem:  # noqa: BLE001 - whatever user code raises ends its attempt
            failed = results.outcome_of_exception(problem, job.context, job.cancelled, job.prepared.default_category)
            # A workbench keeps no evidence of attempts: the test sees the exception.
            failed = failed.without_traceback() if isinstance(failed, results.FailedWithTraceback) else failed
            return without_secrets(failed, job)
        if isinstance(answer, Silence):
            return answer
        ours, category = job.prepared.spec is None or job.prepared.is_flow, job.prepared.default_category
        outcome = results.outcome_of_return(
            answer, job.context, MAX_PAYLOAD_BYTES, may_be_outcome=ours, otherwise=category
        )
        return without_secrets(results.check_output(outcome, job), job)

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop

    # -- for transactional steps ---------------------------------------------------------------------------------------
    def start(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            task = asyncio.get_running_loop().create_task(self._carry(job))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(self, job: Job) -> None:
        outcome = await self.do(job, lambda: job.prepared.executor.run(job))
        assert isinstance(outcome, Outcome)
        assert job.waiter is not None
        job.waiter.set_result(outcome)

    def stop(self, job: Job) -> None:
        """A test's handler is never stopped."""

    def close(self) -> None:
        if self._loop is not None:
            self._thread.submit(self._loop.close).result()
        self._thread.shutdown()


async def _give_up(problem: Exception, tries: int) -> None:
    """The database of a test does not come back."""
    raise problem


async def _awaited(answer: Any) -> Any:
    return await answer


def stub(**inputs: Any) -> NoReturn:
    """Registered for a name that only a replacement serves."""
    raise AssertionError("a replaced handler was called for real")


def _judges(claim: Claim) -> bool:
    return claim.step.state is StepState.VALIDATING or claim.planned.phase is Phase.CHECK


def _unknown(step: str, uses: str, how: str) -> NoReturn:
    named = how if how.startswith("step=") else repr(how)
    raise AssertionError(
        f"step {step} uses {uses}. Replace it: bench.replace({named}, returns=…), or all such: bench.replace_others()."
    )
