"""Waits for runs to settle: all waiters of one process share each poll, and get their results from it.

A notification that names runs triggers a poll of these runs alone. Without one, all waiters are polled, and the pause
doubles up to its limit. A poll is one statement: the states, with the outputs of those that have succeeded. A run that
this process created is not polled before the first notification that concerns it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from stepkeep.kernel.errors import NotFound, StepkeepError, StoreUnavailable, Unreadable
from stepkeep.kernel.machine.events import StepReported
from stepkeep.kernel.machine.outcomes import Completed
from stepkeep.kernel.machine.states import RunState
from stepkeep.kernel.plan import Plan
from stepkeep.operations.pipeline.plans import known_plans
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.runs.sleeping import only_sleeps
from stepkeep.operations.runs.views import describe_run, result_output
from stepkeep.store.change import NewRun, RunKey
from stepkeep.store.notifications import SETTLED, within
from stepkeep.store.protocol import RUNS_SETTLED, Notification
from stepkeep.store.records import RunStatus


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a run stands: its output once it has succeeded, and its error once it has failed."""

    state: RunState
    output: Any = None
    error: str | None = None


async def read_results(
    transactor: Transactor, statuses: Mapping[RunKey, RunStatus]
) -> dict[RunKey, RunResult | StepkeepError]:
    """The results of these runs; one that cannot be read is answered with its own error."""
    results: dict[RunKey, RunResult | StepkeepError] = {
        key: RunResult(state=status.state, error=status.error) for key, status in statuses.items()
    }
    succeeded = {key: status for key, status in statuses.items() if status.state is RunState.SUCCEEDED}
    # Of runs whose plan was known, the outputs were read with their states.
    outputs = {(*key, no): output for key, status in succeeded.items() for no, output in status.outputs.items()}
    plans = await known_plans(transactor, {status.definition_id for status in succeeded.values()})
    wants: list[tuple[str, str, int]] = []
    for key, status in succeeded.items():
        plan = plans.get(status.definition_id)
        if plan is None or plan.definition.output is not None:
            # A declared output may read any step, the input and states: the view has them all.
            results[key] = await _described(transactor, key)
        else:
            wants += [(*key, no) for no in plan.results if (*key, no) not in outputs]
    if wants:
        outputs |= await transactor.store.read_outputs(wants)
    for key, status in succeeded.items():
        plan = plans.get(status.definition_id)
        if plan is not None and plan.definition.output is None:
            results[key] = await _result_of(
                transactor, key, status, {plan.steps[no].name: no for no in plan.results}, outputs
            )
    return results


async def _result_of(
    transactor: Transactor,
    key: RunKey,
    status: RunStatus,
    names: Mapping[str, int],
    outputs: Mapping[tuple[str, str, int], bytes | None],
) -> RunResult | StepkeepError:
    """The result of a run from the outputs of its last steps."""
    try:
        values = await transactor.payloads.outputs({(*key, no): outputs.get((*key, no)) for no in names.values()})
    except StepkeepError as problem:
        return problem
    found = {name: values[(*key, no)] for name, no in names.items()}
    return RunResult(state=status.state, output=result_output(found))


async def _described(transactor: Transactor, key: RunKey) -> RunResult | StepkeepError:
    tenant, run_id = key
    try:
        run = (await describe_run(transactor, run_id, tenant=tenant)).run
    except StepkeepError as problem:
        return problem
    return RunResult(state=run.state, output=run.output, error=run.error)


PAUSES, RARE_PAUSES = (0.002, 0.5), (0.05, 2.0)
"""Seconds between polls of all waiters, the first and the longest: without notifications, and with them. With them the
first is as long as the longest interval between two notifications: earlier polls would mostly find nothing."""

MOST_CREATED = 10_000
"""How many runs that nobody waits for yet are remembered as created here."""

log = logging.getLogger(__name__)


class _Waiter(msgspec.Struct, frozen=True, eq=False):
    """One waiter: a run and the states it waits for."""

    key: RunKey
    states: frozenset[RunState]
    answer: asyncio.Future[RunResult]


class RunWaiter:
    """All waiters of this process. One per engine."""

    def __init__(self, transactor: Transactor) -> None:
        self._transactor, self._store = transactor, transactor.store
        transactor.succeeded, transactor.creating = self._succeeded, self._creating
        self.pauses, self.rare_pauses = PAUSES, RARE_PAUSES
        self._waiters: dict[RunKey, dict[_Waiter, None]] = {}
        self._named: set[RunKey] = set()
        """The runs to poll next: those of new waiters, and those that notifications name."""
        self._created: dict[str, tuple[RunKey, int]] = {}
        """Runs that this process creates, with their definitions. No notification has concerned them: they have not
        settled."""
        self._definitions: dict[RunKey, int] = {}
        """The definitions of runs that are waited for, as far as they are known."""
        self._polls_all = False
        self._polling: asyncio.Task[None] | None = None
        self._notification = asyncio.Event()
        self._unsubscribe: Callable[[], None] | None = None

    async def until(self, tenant: str, run_id: str, states: Collection[RunState]) -> RunResult:
        """Return the result of the run once its state is one of these; a run that only sleeps is not blocked."""
        with self.expecting(tenant, run_id, states) as answer:
            return await answer

    @contextmanager
    def expecting(
        self, tenant: str, run_id: str, states: Collection[RunState], *, polls_first: bool = True
    ) -> Iterator[asyncio.Future[RunResult]]:
        """The same as a future, which is answered inside the block. Without `polls_first`, the caller knows that the
        run is in none of these states yet."""
        loop = asyncio.get_running_loop()
        waiter = _Waiter((tenant, run_id), frozenset(states), loop.create_future())
        self._waiters.setdefault(waiter.key, {})[waiter] = None
        created, definition = self._created.pop(run_id, (None, 0))
        if created == waiter.key:
            self._definitions[waiter.key] = definition
        if polls_first and not (created == waiter.key and self._store.notifier.is_connected):
            self._named.add(waiter.key)
            self._notification.set()
        if self._polling is None or self._polling.done() or self._polling.get_loop() is not loop:
            self._notification = asyncio.Event()
            self._unsubscribe = self._unsubscribe or self._store.notifier.listen(self._notified)
            self._polling = loop.create_task(self._poll_while_waited_for())
        try:
            yield waiter.answer
        finally:
            self._remove(waiter)

    def _creating(self, new_runs: Sequence[NewRun]) -> None:
        """This process is about to create these runs. Called before the commit, so that no notification of a run can
        arrive earlier."""
        if self._unsubscribe is None or not self._store.notifier.is_connected:
            return
        for new in new_runs:
            if new.run.state in SETTLED:
                # The commit that creates it tells no waiter.
                self._created.pop(new.run.id, None)
                continue
            self._created[new.run.id] = ((new.run.tenant, new.run.id), new.run.definition_id)
            if len(self._created) > MOST_CREATED:
                del self._created[next(iter(self._created))]

    def _succeeded(self, key: RunKey, plan: Plan, reports: Sequence[StepReported]) -> None:
        """This process has committed the reports that ended a run. If they have its output, nothing is read."""
        if key not in self._waiters or plan.definition.output is not None:
            return
        outputs = {
            report.no: report.outcome.output
            for report in reports
            if (report.tenant, report.run_id) == key and isinstance(report.outcome, Completed)
        }
        if outputs.keys() >= set(plan.results):
            output = result_output({plan.steps[no].name: outputs[no] for no in plan.results})
            self._answer([key], RunResult(state=RunState.SUCCEEDED, output=output))

    def _remove(self, waiter: _Waiter) -> None:
        mine = self._waiters.get(waiter.key, {})
        mine.pop(waiter, None)
        if not mine:
            self._waiters.pop(waiter.key, None)
            self._definitions.pop(waiter.key, None)

    def _notified(self, notification: Notification) -> None:
        named = notification.runs_of(RUNS_SETTLED)
        if named is None:
            self._created.clear()
            self._polls_all = bool(self._waiters)
            self._notification.set()
            return
        for run_id in named:
            self._created.pop(run_id, None)
        if mine := {key for key in self._waiters if key[1] in named}:
            self._named |= mine
            self._notification.set()

    async def close(self) -> None:
        """Stop listening; remaining waiters get the reason."""
        unsubscribe, self._unsubscribe = self._unsubscribe, None
        if unsubscribe is not None:
            unsubscribe()
        self._answer(list(self._waiters), StoreUnavailable("the engine was closed during a wait for a run"))
        # A task of a loop that the program used before has ended with it.
        if self._polling is not None and self._polling.get_loop() is asyncio.get_running_loop():
            self._polling.cancel()
            await asyncio.gather(self._polling, return_exceptions=True)

    async def _poll_while_waited_for(self) -> None:
        notifier, clock = self._store.notifier, asyncio.get_running_loop().time
        pause, is_named, polled_all_at = 0.0, True, clock()
        while self._waiters:
            self._notification.clear()
            shortest, longest = self.rare_pauses if notifier.is_connected else self.pauses
            # Notifications of other runs end a pause early; they must not put the poll of all off forever.
            polls_all = self._polls_all or not is_named or clock() - polled_all_at >= longest
            keys = [
                key
                for key in (self._waiters if polls_all else self._named)
                if any(not waiter.answer.done() for waiter in self._waiters.get(key, ()))
            ]
            self._named.clear()
            self._polls_all = False
            began = clock()
            found = await self._poll(keys) if keys else False
            if polls_all:
                # Polling all without a pause would slow down the workers that the waiters wait for.
                polled_all_at = clock()
                await asyncio.sleep(polled_all_at - began)
            pause = shortest if found else min(longest, max(shortest, pause * 2))
            is_named = await within(pause, self._notification)

    async def _poll(self, keys: Sequence[RunKey]) -> bool:
        """Answer the waiters of these runs that have settled. Returns whether there were any."""
        try:
            statuses = await self._store.read_states(keys, self._results_of(keys))
            self._definitions |= {key: status.definition_id for key, status in statuses.items() if key in self._waiters}
            settled = {
                key: status
                for key, status in statuses.items()
                if any(status.state in waiter.states for waiter in self._waiters.get(key, ()))
                and not await only_sleeps(self._transactor, key, status)
            }
            results = await read_results(self._transactor, settled)
        except StoreUnavailable as problem:
            log.debug("cannot poll at the moment: %s", problem)
            return False
        except Unreadable as problem:
            self._answer([(problem.tenant or "", problem.run_id or "")], problem)
            return True
        except Exception as problem:  # noqa: BLE001 - every waiter gets the reason
            self._answer(keys, problem)
            return True
        missing = [key for key in keys if key not in statuses]
        for key in missing:
            self._answer([key], NotFound(f"there is no run {key[1]}"))
        for key, result in results.items():
            self._answer([key], result)
        return bool(results or missing)

    def _results_of(self, keys: Sequence[RunKey]) -> dict[RunKey, Sequence[int]]:
        """The steps whose outputs are the results of these runs, where that is known without a read."""
        plans = {key: self._transactor.plans.get(self._definitions.get(key, 0)) for key in keys}
        return {key: plan.results for key, plan in plans.items() if plan is not None and plan.definition.output is None}

    def _answer(self, keys: Sequence[RunKey], said: RunResult | Exception) -> None:
        """Answer the waiters of these runs: with an error all of them, with a result those that wait for its state."""
        for waiter in [waiter for key in keys for waiter in self._waiters.get(key, ())]:
            if waiter.answer.done():
                continue
            if isinstance(said, Exception):
                waiter.answer.set_exception(said)
            elif said.state in waiter.states:
                waiter.answer.set_result(said)
