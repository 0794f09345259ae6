"""Does what parents ask for about their child runs: start one, cancel one, and tell the parent how one ended.

Each is a transaction of its own, and may be done twice: a child starts only if its row is still requested, a cancel
repeats without harm, and a parent hears the same news once. Workers call the sweep; nothing is kept in memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from stepkeep.definition.expressions.conditions import CompiledTemplate, compile_inputs
from stepkeep.definition.expressions.elements import ElementTemplate
from stepkeep.kernel.compiler import ConditionView
from stepkeep.kernel.composition.child_runs import CONTINUE, is_child
from stepkeep.kernel.decide.compensation import leaves_effects
from stepkeep.kernel.decide.decision import asked_json, asked_names, requesters_of
from stepkeep.kernel.decide.judging import spent_above
from stepkeep.kernel.errors import Conflict, ExpressionError, InvalidInput, NotFound, Refused, StepkeepError, StoreError
from stepkeep.kernel.machine.events import CancelRequested, ChildEnded
from stepkeep.kernel.machine.rows import Child, ChildMode, ChildState, ChildTodo, Details, Persons
from stepkeep.kernel.machine.states import Category, Rollback, RunState
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.people.persons import UNKNOWN, persons_in
from stepkeep.kernel.plan import Plan, PlannedStep
from stepkeep.operations.children.child_rollback import rollback_request
from stepkeep.operations.definitions.publish import MAX_DEPTH, MAX_TREE, find_plan
from stepkeep.operations.pipeline.plans import PlanCache, plan_for
from stepkeep.operations.pipeline.start import StartBatch, Starter, StartRequest
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.runs.waiting import RunResult, read_results
from stepkeep.store.change import Loaded, More, RunKey, Write
from stepkeep.store.rows import BegunChild

LIMIT = 100
"""How many children one sweep looks after."""

PUT_OFF_US = 30_000_000
"""When something is tried again that failed for another reason than the child itself."""

PARENT = "parent:"
"""How the name of an actor begins that is a run."""

log = logging.getLogger(__name__)


def actor_of(child: Child) -> str:
    """The actor of what a parent causes in its child."""
    return f"{PARENT}{child.run_id}"


class ChildSweep:
    """Does what is due about children. One per worker; several may do the same at once."""

    def __init__(self, transactor: Transactor) -> None:
        self._transactor, self._starter = transactor, Starter(transactor)
        self.changed = asyncio.Event()
        """Set when a transaction of this process left something to do."""
        transactor.on_children.append(self.changed.set)
        self._acts: dict[ChildTodo, Callable[[Child], Awaitable[None]]] = {
            ChildTodo.START: self._start,
            ChildTodo.CANCEL: self._cancel,
            ChildTodo.TELL: self._report_end,
        }

    def close(self) -> None:
        """Listen no more."""
        self._transactor.on_children.remove(self.changed.set)

    async def sweep(self, limit: int = LIMIT) -> int:
        """Do what is due. Returns how much was found."""
        self.changed.clear()
        due = await self._transactor.store.children.find_due(limit)
        for child in due:
            await self._look_after(child)
        return len(due)

    async def family_of(self, run: RunKey) -> tuple[RunKey, ...]:
        """The live descendants of a run."""
        found: list[RunKey] = []
        generation = [run[1]]
        while generation and len(found) < MAX_TREE:
            children = [
                child for one in generation for child in await self._transactor.store.children.read_all(run[0], one)
            ]
            generation = [child.child_id for child in children if child.state is ChildState.STARTED]
            found += [(run[0], one) for one in generation]
        return tuple(found)

    async def begin(self, child: Child) -> None:
        """Start this one now, if it is still to be started."""
        if child.todo is ChildTodo.START:
            await self._look_after(child)

    async def _look_after(self, child: Child) -> None:
        assert child.todo is not None
        try:
            await self._acts[child.todo](child)
        except StoreError:
            raise
        except Exception as problem:
            # It stays on record as not done, and the other children are not held up by it.
            level = logging.WARNING if isinstance(problem, StepkeepError) else logging.ERROR
            log.log(level, "child %s of run %s: %s", child.child_id, child.run_id, problem, exc_info=level > 30)
            now = await self._transactor.store.now()
            await self._save(replace(child, todo_at=now + PUT_OFF_US), child.todo)

    async def _save(self, child: Child, was: ChildTodo) -> bool:
        return await self._transactor.store.children.save(child, was)

    # -- start -------------------------------------------------------------------------------------------------------
    async def _start(self, child: Child) -> None:
        try:
            request = await self._request(child)
        except (Refused, InvalidInput, NotFound, ExpressionError) as problem:
            await self._refuse(child, str(problem))
            return
        try:
            await self._transactor.run(
                lambda: _FirstOfChild(child, request, self._starter, self._transactor.plans), None
            )
        except Conflict:
            # It was called back, or another worker has started it.
            return
        except _Spent as problem:
            await self._refuse(child, str(problem), Category.GOVERNANCE)
        except (Refused, InvalidInput) as problem:
            await self._refuse(child, str(problem))

    async def _request(self, child: Child) -> StartRequest:
        """The start of a child, from what its parent has recorded."""
        transactor, tenant = self._transactor, child.tenant
        if child.undoes is not None:
            return await self._starter.reduced(await rollback_request(transactor, child, actor_of(child)))
        plan = await find_plan(transactor, child.workflow, child.version, tenant=tenant)
        record = await transactor.store.read_run(tenant, child.run_id)
        if record is None:
            raise NotFound(f"there is no run {child.run_id}")
        details = await transactor.payloads.detail(record.details)
        parent = await plan_for(transactor, record.run)
        given = await self._given(child, parent, details)
        asked = asked_names(requesters_of(details))
        continues = not is_child(child.child_id)
        if continues:
            # A chain has no end: the run before the last one is no person, and would be one more each time.
            link = await transactor.store.children.read_link(tenant, child.run_id)
            asked = tuple(name for name in asked if link is None or name != actor_of(link))
        return await self._starter.reduced(
            StartRequest(
                plan=plan,
                caller=Caller(tenant, actor_of(child)),
                input=msgspec.json.encode(given),
                run_id=child.child_id,
                operation=CONTINUE if continues else "child",
                business_key=details.business_key if continues else None,
                labels=details.labels if continues else None,
                correlation_id=details.correlation_id,
                priority=record.run.priority,
                asked_before=asked_json(asked),
                takes_slot=child.mode is ChildMode.DETACHED,
            )
        )

    async def _given(self, child: Child, parent: Plan, details: Details) -> Any:
        """The input of a child: the inputs of its step, from the input of the parent and the outputs of its steps."""
        planned, transactor = parent.at(child.no), self._transactor
        if planned.owner is not None and parent.steps[planned.owner].kind.is_flow:
            return await self._arguments(child)
        if planned.definition.inputs is None:
            return None
        template, last = _inputs_of(parent, planned)
        numbers = {name: parent.number_for(planned, name) for name in template.reads}
        rows = await transactor.store.read_steps(child.tenant, child.run_id) if numbers else []
        read = [*numbers.values(), *(() if last is None else (last,))]
        places = [(child.tenant, child.run_id, no) for no in read]
        found = await transactor.payloads.outputs(await transactor.store.read_outputs(places)) if places else {}
        states = {step.no: step.state for step in rows}
        return template.render(
            ConditionView(
                run_id=child.run_id,
                input=details.input,
                outputs={name: found.get((child.tenant, child.run_id, no)) for name, no in numbers.items()},
                states={name: states[no] for name, no in numbers.items() if no in states},
                index=planned.index,
                last=None if last is None else found.get((child.tenant, child.run_id, last)),
            )
        )

    async def _arguments(self, child: Child) -> Any:
        """The input of a child that a flow has called. Its generation is counted, because a flow may call itself."""
        transactor, tenant = self._transactor, child.tenant
        # A successor of the flow begins a tree of its own: the length of a chain has no limit.
        generation, above = 2, child.run_id if is_child(child.child_id) else ""
        while is_child(above) and (link := await transactor.store.children.read_link(tenant, above)) is not None:
            generation, above = generation + 1, link.run_id
        if generation > MAX_DEPTH:
            raise InvalidInput(f"it would be of generation {generation} in its tree; at most {MAX_DEPTH} are allowed")
        rows = await transactor.store.read_steps(tenant, child.run_id)
        [call] = [row.note.call for row in rows if row.no == child.no and row.note is not None]
        assert call is not None
        return msgspec.json.decode(await transactor.payloads.value(tenant, child.run_id, call.arguments.encode()))

    async def _refuse(self, child: Child, error: str, category: Category = Category.VALIDATION) -> None:
        """The child cannot start: its parent is told why. The row of a detached one keeps the reason."""
        is_awaited = child.mode is ChildMode.AWAITED
        refused = replace(
            child,
            state=ChildState.REFUSED,
            category=category,
            error=error,
            todo=ChildTodo.TELL if is_awaited else None,
            todo_at=child.todo_at if is_awaited else None,
        )
        if await self._save(refused, ChildTodo.START):
            self.changed.set()
            if not is_awaited:
                log.warning("the detached child %s of run %s could not start: %s", child.child_id, child.run_id, error)

    # -- cancel ------------------------------------------------------------------------------------------------------
    async def _cancel(self, child: Child) -> None:
        event = CancelRequested(
            tenant=child.tenant,
            run_id=child.child_id,
            actor=actor_of(child),
            compensate=child.recall == "undo",
            reason=f"its parent {child.run_id} called it back",
        )
        [answer] = await self._transactor.submit_all([event])
        if isinstance(answer, Exception) and not isinstance(answer, Conflict | NotFound):
            raise answer
        await self._save(replace(child, todo=None, todo_at=None), ChildTodo.CANCEL)

    # -- tell --------------------------------------------------------------------------------------------------------
    async def _report_end(self, child: Child) -> None:
        event = ChildEnded(
            tenant=child.tenant,
            run_id=child.run_id,
            actor=f"child:{child.child_id}",
            no=child.no,
            activation=child.activation,
            child=child.child_id,
            state=child.outcome,
            category=child.category,
            error=child.error,
            output=await self._output(child),
            partial=await self._is_partial(child),
            persons=await self._persons(child),
        )
        [answer] = await self._transactor.submit_all([event])
        if isinstance(answer, Exception) and not isinstance(answer, NotFound):
            raise answer
        await self._save(replace(child, todo=None, todo_at=None), ChildTodo.TELL)

    async def _is_partial(self, child: Child) -> bool:
        """Whether something remains of what a child did that did not succeed, or of the child that it rolled back."""
        if child.state is not ChildState.ENDED or child.outcome is RunState.SUCCEEDED:
            return False
        transactor = self._transactor
        record = await transactor.store.read_run(child.tenant, child.child_id)
        if record is None or child.undoes is not None or record.run.rollback is Rollback.PARTIAL:
            return record is None or record.run.rollback is Rollback.PARTIAL
        rows = await transactor.store.read_steps(child.tenant, child.child_id)
        return leaves_effects(await plan_for(transactor, record.run), record.run, rows)

    async def _persons(self, child: Child) -> Persons:
        """The persons of a child and of everything below it, for the record of its parent."""
        if child.state is not ChildState.ENDED:
            return Persons()
        store, place = self._transactor.store, (child.tenant, child.child_id)
        rows, involved = await store.read_steps(*place), (await store.read_involved([place])).get(place)
        return UNKNOWN if not rows or involved is None else persons_in(rows, involved.executors)

    async def _output(self, child: Child) -> bytes | None:
        if child.outcome is not RunState.SUCCEEDED:
            return None
        key = (child.tenant, child.child_id)
        found = await read_results(self._transactor, await self._transactor.store.read_states([key]))
        result = found.get(key)
        if isinstance(result, Exception):
            raise result
        return msgspec.json.encode(result.output) if isinstance(result, RunResult) else None


def _inputs_of(parent: Plan, planned: PlannedStep) -> tuple[CompiledTemplate | ElementTemplate, int | None]:
    """The inputs of a step, and the number of the element before it if they read what that one returned."""
    inputs = planned.definition.inputs
    if planned.owner is None:
        return compile_inputs(inputs, parent.definition), None
    template = ElementTemplate(inputs, parent.definition, planned.definition)
    return template, planned.no - 1 if template.reads_last and planned.index else None


class _Spent(Refused):
    """A run above has spent its budget, and starts no further child."""


class _FirstOfChild(StartBatch):
    """The start of a child: its run is created in the transaction that finds it still requested."""

    def __init__(self, child: Child, request: StartRequest, starter: Starter, plans: PlanCache) -> None:
        super().__init__([request], starter.template, starter.live)
        self._child, self._known = child, plans

    def decide(self, loaded: Loaded) -> More | Write:
        if self._child.undoes is None:
            above = self._known.bounds.of(self._known, loaded, (self._child.tenant, self._child.child_id))
            if isinstance(above, More):
                return above
            if (spent := spent_above(above)) is not None:
                raise _Spent(str(spent))
        found = super().decide(loaded)
        if isinstance(found, Write):
            [answer] = self.answers
            if isinstance(answer, Exception):
                raise answer
            asked = self._child
            found.rows.add(
                BegunChild(
                    tenant=asked.tenant,
                    run_id=asked.run_id,
                    no=asked.no,
                    activation=asked.activation,
                    started_at=loaded.now,
                )
            )
        return found
