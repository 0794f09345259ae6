"""The last part of a differential life: children, resources, limits, slots and jobs, the same on model and store.

Chance seldom ends a child between its recall and its cancel, or lets two steps ask for one resource. This does, in
every life, through the operations that workers use; jobs go through the store itself. Both tenants have the same ids,
and rows of one are read again after the other has deleted its own. `differential` calls it and compares every answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec.structs import replace

from stepkeep.kernel.decide.decision import Claimer
from stepkeep.kernel.decide.limits import LimitRule
from stepkeep.kernel.definition import SECOND, Definition, Handler, Limit, StepDefinition, SubWorkflow, Wait
from stepkeep.kernel.machine.rows import Child, ChildTodo, Worker
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.plan import Plan
from stepkeep.operations.children.children import ChildSweep
from stepkeep.operations.continuation import pausing, quarantine
from stepkeep.operations.limits.limits import set_limit
from stepkeep.operations.limits.slots import SlotSweep
from stepkeep.operations.people import people
from stepkeep.operations.pipeline import workers
from stepkeep.operations.pipeline.transact import Claim
from stepkeep.store.change import RunKey
from stepkeep.store.limits import KeyInUse
from stepkeep.store.protocol import Store
from stepkeep.store.rows import (
    Job,
    JobAction,
    JobRun,
    JobState,
    LimitLine,
    RunOutcome,
)
from stepkeep_lab.storecheck.bench import ACTOR, Bench, gate, report_of, task

OnBoth = Callable[[Callable[[Bench, int], Awaitable[Any]], str], Awaitable[list[Any]]]
"""Does something on the model and on the store, which must answer alike."""

NEEDY = Handler(name="needy")
KEEPER = Handler(name="keeper")


def _child(name: str, order: int, **options: Any) -> StepDefinition:
    return gate(name, order, child=SubWorkflow(workflow="below", version=1, **options))


BELOW = Definition(name="below", version=1, steps=(gate("wait", wait=Wait(event="paid")),))
ABOVE = Definition(
    name="above",
    version=1,
    steps=(_child("one", 0), _child("two", 1), _child("three", 2), _child("far", 3, detached=True)),
)
NEEDS = Definition(
    name="needs",
    version=1,
    steps=(
        task("alone", 0, executor=NEEDY, resources={"repo": "exclusive"}),
        task("together", 1, executor=NEEDY, resources={"repo": "shared", "cpu": 2}),
    ),
)
URGENT = replace(NEEDS, name="needs-first", priority=3)
LIMITS = ("api", "gpu", "mail")
KEYED = Limit(name="api", per="${{ input.customer }}", running=1)
LIMITED = Definition(
    name="limited",
    version=1,
    steps=(
        task("one", 0, executor=KEEPER, limits=(KEYED, Limit(name="gpu", running=2, weight=2))),
        task("two", 1, executor=KEEPER, limits=(Limit(name="mail", rate=1, period=3600 * SECOND),)),
    ),
)
NARROW = Definition(name="narrow", version=1, steps=(gate("wait", wait=Wait(event="paid")),), slots=1)
OTHER = replace(NARROW, name="narrow-too", priority=2)
EVERY = (BELOW, ABOVE, NEEDS, URGENT, LIMITED, NARROW, OTHER)

JOBS = tuple(f"00000000-0000-7000-8000-00000000000{number}" for number in range(4))
"""The ids of jobs, and of the runs that they act on."""


TURNS = 4
"""How often steps are claimed with their resources. One of them ends after each but the last."""


class Composition:
    """What one tenant composes. `begin` makes it, `look` reads it, and `end` deletes it."""

    def __init__(self, on_both: OnBoth, tenant: str) -> None:
        self._on_both, self._tenant = on_both, tenant
        self._by: dict[str, Any] = {"caller": Caller(tenant, ACTOR)}
        self._runs: list[str] = []
        self._parents: list[str] = []
        self._claims: list[list[Claim]] = [[], []]

    async def begin(self) -> None:
        plans = {one.name: await self._publish(one) for one in EVERY}
        await self._children(plans["above"])
        await self._resources([plans["needs"], plans["needs"], plans["needs-first"]])
        await self._limits(plans["limited"])
        await self._slots([plans["narrow"], plans["narrow"], plans["narrow-too"], plans["narrow"]])
        await self._jobs()

    async def look(self) -> None:
        """Read all of it."""

        async def act(bench: Bench, _: int) -> Any:
            store, tenant = bench.store, self._tenant
            return {
                "children": {run: await _read_children(store, tenant, run) for run in self._parents},
                "due": await _due_children(store),
                "held": await store.resources.read_holds(tenant),
                "waits": await self._waiting(bench),
                "limits": await self._read_limits(bench),
                "slots": await self._read_slots(store),
                "jobs": await _read_jobs(store, tenant),
            }

        await self._on_both(act, "look at what is composed")

    async def end(self) -> None:
        """End and delete every run, and jobs. The other tenant still has its own."""
        await self.look()
        await self._report(len(self._claims[0]))
        for run in self._runs:
            await self._cancel(run)
        for _ in range(4):
            await self._sweep_children()
        await self.look()

        async def delete(bench: Bench, _: int) -> Any:
            return sorted(await bench.store.delete_runs(self._tenant, self._runs))

        await self._on_both(delete, "delete what is composed")
        for later in (-1, 1, 1, 1):

            async def forget(bench: Bench, _: int, later: int = later) -> Any:
                return await bench.store.jobs.forget(self._tenant, await bench.store.now() + later, 1)

            await self._on_both(forget, "forget jobs")
            await self.look()

    # -- children ----------------------------------------------------------------------------------------------------
    async def _children(self, plans: Sequence[Plan]) -> None:
        """One child ends while it is awaited, one is called back while it runs, and one before it starts."""
        parent = await self._start(plans, "a parent")
        self._parents.append(parent)
        [one, two, three, far] = (await self._on_both(self._of(parent), "requested"))[0]
        await self._aside(parent, "due while the parent is quarantined", _due_children)
        now = (await self._on_both(lambda bench, _: bench.store.now(), "the time of children"))[0]
        for child, later in ((two, -5 * SECOND), (far, 5 * SECOND)):
            await self._put_off(replace(child, todo_at=now + later))
        await self.look()
        for child in (one, two, far):
            await self._begin(child)
        await self._send(one.child_id)
        await self._send(far.child_id)
        await self.look()
        await self._on_both(
            lambda bench, _: bench.store.children.save(one, ChildTodo.START), "save what was done before"
        )
        await self._cancel(parent)
        await self.look()
        await self._begin(three)  # it was called back: it never starts
        await self._sweep_children()
        await self.look()
        self._runs += [child.child_id for child in (one, two, three, far)]

    async def _put_off(self, child: Child) -> None:
        await self._on_both(lambda bench, _: bench.store.children.save(child, ChildTodo.START), "put off")

    def _of(self, parent: str) -> Callable[[Bench, int], Awaitable[list[Child]]]:
        async def act(bench: Bench, _: int) -> list[Child]:
            return await bench.store.children.read_all(self._tenant, parent)

        return act

    async def _begin(self, child: Child) -> None:
        async def act(bench: Bench, _: int) -> Any:
            sweep = ChildSweep(bench.transactor)
            try:
                await sweep.begin(child)
            finally:
                sweep.close()
            found = await bench.store.read_run(self._tenant, child.child_id)
            return None if found is None else found.run.state

        await self._on_both(act, f"begin child {child.no}")

    async def _sweep_children(self) -> None:
        async def act(bench: Bench, _: int) -> Any:
            sweep = ChildSweep(bench.transactor)
            try:
                return await sweep.sweep()
            finally:
                sweep.close()

        await self._on_both(act, "look after children")

    # -- resources ---------------------------------------------------------------------------------------------------
    async def _resources(self, plans: Sequence[Sequence[Plan]]) -> None:
        """Steps of three runs ask for one resource: alone, together, and again after one has ended."""
        runs = [await self._start(one, "a run that needs resources") for one in plans]
        rows = await self._register("needy")
        await self._aside(runs[0], "waits while a run is quarantined", lambda store: self._of_runs(store, runs))
        await self._paused(runs[1])
        for turn in range(TURNS):
            await self._claim(rows, NEEDY)
            await self.look()
            if turn + 1 < TURNS:
                await self._report(1)
                await self.look()

    async def _register(self, app: str) -> list[Worker]:
        by: dict[str, Any] = {"tenant": self._tenant, "app": app, "capacity": 9, "owner": None}
        return await self._on_both(lambda bench, _: workers.register(bench.store, **by), "register at last")

    async def _claim(self, rows: Sequence[Worker], handler: Handler) -> None:
        """Claim every step of a handler that has what it needs."""

        async def act(bench: Bench, place: int) -> Any:
            queues = frozenset(await _queues_of(bench.store, self._tenant, handler))
            row = rows[place]
            claimer = Claimer(actor=row.id, worker=row.no, lease=600 * SECOND, slots=9, queues=queues)
            found = await bench.transactor.claim(claimer, limit=9) or await bench.transactor.claim(claimer, limit=9)
            self._claims[place] += found
            return found

        await self._on_both(act, "claim what is set aside")

    async def _report(self, count: int) -> None:
        """The steps that were claimed first end, and give their resources back."""

        async def act(bench: Bench, place: int) -> Any:
            events = [report_of(one) for one in self._claims[place][:count]]
            self._claims[place] = self._claims[place][count:]
            return await bench.transactor.report(events, None)

        await self._on_both(act, "give resources back")

    async def _waiting(self, bench: Bench) -> Any:
        queues = await _queues_of(bench.store, self._tenant, NEEDY)
        resources, every = bench.store.resources, [number for number, _ in await bench.store.list_queues(self._tenant)]
        asked: list[tuple[list[int], int, RunKey | None]] = [
            (queues, 9, None),
            (queues, 2, None),
            ([], 9, None),
            ([one for one in every if one not in queues], 9, None),
        ]
        asked += [(queues, limit, (self._tenant, run)) for run in self._runs for limit in (9, 1)]
        found = [await resources.find_waiting(of, limit, run) for of, limit, run in asked]
        found.append(await resources.find_waiting(queues, 2, None, 1))
        return [[(one.tenant, one.run_id, one.no) for one in some] for some in found], await resources.has_waiting()

    async def _of_runs(self, store: Store, runs: Sequence[str]) -> Any:
        queues = await _queues_of(store, self._tenant, NEEDY)
        found = [
            await store.resources.find_waiting(queues, 9, key) for key in (None, *((self._tenant, one) for one in runs))
        ]
        return [[(one.tenant, one.run_id, one.no) for one in some] for some in found]

    # -- limits ------------------------------------------------------------------------------------------------------
    async def _limits(self, plans: Sequence[Plan]) -> None:
        """Steps of runs meet under keys, wait for one another, and go on; rules change meanwhile."""
        before = len(self._claims[0])
        runs = [await self._start(plans, "a limited run", f'{{"customer":"{name}"}}') for name in "aab"]
        rows = await self._register("keeper")
        await self._claim(rows, KEEPER)
        await self.look()
        await self._aside(runs[1], "parked while the run is quarantined", self._read_lines)
        await self._paused(runs[1])
        for rule, later, ended in (
            (LimitRule(running=4), -5 * SECOND, 0),
            (None, -5 * SECOND, 2),
            (None, 5 * SECOND, 1),
            (None, -5 * SECOND, 1),
        ):
            await self._change_rule(rule, later)
            await self.look()
            await self._claim(rows, KEEPER)
            await self.look()
            await self._report_from(before, ended)
            await self.look()
        await self._on_both(lambda bench, _: bench.store.limits.forget_keys(-SECOND, 1), "forget a key")

    async def _change_rule(self, rule: LimitRule | None, later: int) -> None:
        async def act(bench: Bench, _: int) -> Any:
            if rule is not None:
                await set_limit(bench.store, "gpu", rule, None, "more of them", **self._by)
            for name in LIMITS:
                await bench.store.limits.wake(self._tenant, name, later)
            bench.transactor.limit_rules.forget(self._tenant)

        await self._on_both(act, "change a rule")

    async def _report_from(self, first: int, count: int) -> None:
        """Claims of limited steps end; those with resources are kept."""

        async def act(bench: Bench, place: int) -> Any:
            mine = self._claims[place][first : first + count]
            del self._claims[place][first : first + count]
            return await bench.transactor.report([report_of(one) for one in mine], None)

        await self._on_both(act, "give places back")

    async def _read_limits(self, bench: Bench) -> Any:
        limits, tenant = bench.store.limits, self._tenant
        keys = {name: await limits.read_keys(tenant, name, "", 9) for name in LIMITS}
        return {
            "use": await limits.count_use(tenant),
            "keys": {name: [_moment(one) for one in found] for name, found in keys.items()},
            "pages": [_moment(one) for place in ("", "a") for one in await limits.read_keys(tenant, "api", place, 1)],
            "holds": [
                (one.run_id, one.no, one.weight, one.step)
                for name, found in keys.items()
                for each in found
                for one in await limits.read_holds(tenant, name, each.key, 1)
            ],
            "waits": [replace(one, queue=0) for run in self._runs for one in await limits.read_waits(tenant, run)],
            "lines": await self._read_lines(bench.store),
            "due": await limits.has_due(),
        }

    async def _read_lines(self, store: Store) -> Any:
        """The lines of all queues that are due, and the steps in them."""
        limits, queues = store.limits, [number for number, _ in await store.list_queues(self._tenant)]
        due = await limits.find_due(queues, 9)
        keeper = await _queues_of(store, self._tenant, KEEPER)
        lines = [
            LimitLine(self._tenant, name, key, queue)
            for name, key in (("api", "a"), ("gpu", ""), ("mail", ""))
            for queue in keeper
        ]
        parked = [await limits.find_parked(line, limit) for line in lines for limit in (9, 1)]
        return {
            "due": sorted((one.line.name, one.line.key, one.key.held, len(one.key.freed)) for one in due),
            "first": len(await limits.find_due(queues, 1)),
            "none": await limits.find_due((), 9),
            "parked": [[(one.run_id, one.no) for one in found] for found in parked],
        }

    # -- slots -------------------------------------------------------------------------------------------------------
    async def _slots(self, plans: Sequence[Sequence[Plan]]) -> None:
        """Runs wait for the slot of another; it ends, and the next one is granted it."""
        runs = [await self._start(one, "a run that needs a slot") for one in plans]
        await self.look()
        await self._paused(runs[3])
        for run in runs[1:2]:
            await self._aside(run, "slots while a run is quarantined", self._read_slots)
        for run in runs[:2]:
            await self._cancel(run)
            await self.look()
            await self._on_both(lambda bench, _: _grant(bench), "grant slots")
            await self.look()

    async def _read_slots(self, store: Store) -> Any:
        slots, tenant = store.slots, self._tenant
        waiting = [
            await slots.find_waiting(tenant, name, limit) for name in ("narrow", "narrow-too") for limit in (9, 1)
        ]
        return {
            "workflows": [sorted(await slots.find_workflows(limit)) for limit in (9, 1)],
            "held": await slots.count_held(tenant),
            "waiting": waiting,
            "use": await slots.read_use(tenant),
            "counts": [await slots.count_waiting(tenant, limit) for limit in (9, 1)],
            "rows": [await slots.read(tenant, run) for run in self._runs],
        }

    # -- jobs --------------------------------------------------------------------------------------------------------
    async def _jobs(self) -> None:
        """Jobs are claimed, lost, reported by a worker that lost them, stopped and done."""
        tenant, now = self._tenant, (await self._on_both(lambda bench, _: bench.store.now(), "the time"))[0]
        made = [_job(tenant, place, now) for place in range(3)]
        for job in (*made, replace(made[0], id=JOBS[3])):
            runs = () if job.id == JOBS[2] else JOBS
            await self._on_both(lambda bench, _, job=job, runs=runs: bench.store.jobs.add(job, runs), "add a job")  # type: ignore[misc]
        await self.look()

        async def carry_out(bench: Bench, _: int) -> Any:
            jobs = bench.store.jobs
            first = await jobs.claim(tenant, JOBS[0], "w1", 0)
            second = await jobs.claim(tenant, JOBS[0], "w2", 60 * SECOND)
            third = await jobs.claim(tenant, JOBS[0], "w3", 60 * SECOND)
            told: list[Any] = [first, second, third]
            assert first is not None
            late = JobRun(tenant=tenant, job_id=JOBS[0], run_id=JOBS[1], state=RunOutcome.REFUSED, detail="late")
            told.append(await jobs.report(first, [late], SECOND))
            if second is not None:
                done = [replace(late, run_id=run, state=RunOutcome.DONE, detail=None) for run in JOBS[:2]]
                told.append(await jobs.report(second, done, SECOND))
                told.append(await jobs.report(second, [replace(late, detail="again")], SECOND))
            return told

        await self._on_both(carry_out, "carry out a job")
        await self.look()
        for what in (JOBS[1], JOBS[1], JOBS[3]):
            await self._on_both(lambda bench, _, what=what: bench.store.jobs.stop(tenant, what), "stop a job")  # type: ignore[misc]
        await self._on_both(
            lambda bench, _: bench.store.jobs.claim(tenant, JOBS[1], "w4", SECOND), "claim a stopped job"
        )

        async def finish(bench: Bench, _: int) -> Any:
            job = await bench.store.jobs.claim(tenant, JOBS[2], "w5", SECOND)
            assert job is not None
            return await bench.store.jobs.report(job, [], SECOND, done=True), await bench.store.jobs.report(
                job, [], SECOND
            )

        await self._on_both(finish, "finish a job")
        await self.look()

    # -- common ------------------------------------------------------------------------------------------------------
    async def _publish(self, definition: Definition) -> list[Plan]:
        plans: list[Plan] = []

        async def act(bench: Bench, _: int) -> Any:
            plans.append(await bench.publish(definition, self._tenant))
            return plans[-1].digest

        await self._on_both(act, f"publish {definition.name}")
        return plans

    async def _start(self, plans: Sequence[Plan], what: str, given: str = "{}") -> str:
        options = {**self._by, "input": given.encode()}
        started = (await self._on_both(lambda bench, place: bench.begin(plans[place], **options), f"start {what}"))[0]
        self._runs.append(started.run_id)
        return str(started.run_id)

    async def _cancel(self, run: str) -> None:
        async def act(bench: Bench, _: int) -> Any:
            return await people.cancel(bench.transactor, run, compensate=False, **self._by)

        await self._on_both(act, "cancel what is composed")

    async def _send(self, run: str) -> None:
        by: dict[str, Any] = {"caller": Caller(self._tenant, "outside"), "message_id": "paid"}
        await self._on_both(lambda bench, _: people.send(bench.transactor, run, "paid", b"{}", **by), "send to a child")

    async def _paused(self, run: str) -> None:
        """Read everything while a run is paused."""
        for act in (pausing.pause_run, pausing.resume_run):
            await self._on_both(lambda bench, _, act=act: act(bench.transactor, run, **self._by), act.__name__)  # type: ignore[misc]
            await self.look()

    async def _aside(self, run: str, what: str, read: Callable[[Store], Awaitable[Any]]) -> None:
        """Read something while a run is quarantined."""
        by = {**self._by, "reason": "odd"}
        await self._on_both(lambda bench, _: quarantine.quarantine(bench.transactor, run, **by), "set aside at last")
        await self._on_both(lambda bench, _: read(bench.store), what)
        await self._on_both(lambda bench, _: quarantine.release(bench.transactor, run, **by), "release at last")


def _moment(one: KeyInUse) -> tuple[str, int, int, bool]:
    """A key without the time of its rate, which is that of a claim."""
    return one.key, one.held, one.waiting, one.tat > 0


async def _grant(bench: Bench) -> int:
    sweep = SlotSweep(bench.transactor)
    try:
        return await sweep.sweep()
    finally:
        sweep.close()


async def _read_children(store: Store, tenant: str, run: str) -> Any:
    found = await store.children.read_all(tenant, run)
    links = [await store.children.read_link(tenant, one.child_id) for one in found]
    return found, await store.children.read_all(tenant, run, 2), links, await store.children.read_link(tenant, run)


async def _due_children(store: Store) -> Any:
    """What is due, and when the first of it was: several are due at the same time."""
    found = await store.children.find_due(100)
    in_order = [one.todo_at for one in found]
    return sorted(found, key=lambda one: (one.tenant, one.child_id)), in_order, len(await store.children.find_due(1))


async def _read_jobs(store: Store, tenant: str) -> Any:
    jobs = store.jobs
    return {
        "due": [sorted(await jobs.find_due(9)), await jobs.find_due(1)],
        "jobs": [await jobs.read(tenant, one) for one in JOBS],
        "by key": [await jobs.find_by_key(tenant, f"key {place}", scope) for place in range(4) for scope in ("", "s")],
        "lists": [await jobs.list_all(tenant), await jobs.list_all(tenant, JOBS[2], 1)],
        "counts": await jobs.count_runs(tenant, JOBS[:2]),
        "waiting": [await jobs.find_waiting(tenant, one, limit) for one in JOBS for limit in (9, 1)],
        "runs": [await jobs.list_runs(tenant, one, JOBS[0], 2) for one in JOBS],
    }


async def _queues_of(store: Store, tenant: str, handler: Handler) -> list[int]:
    return sorted(number for number, spec in await store.list_queues(tenant) if spec.name == handler.name)


def _job(tenant: str, place: int, now: int) -> Job:
    return Job(
        tenant=tenant,
        id=JOBS[place],
        action=(JobAction.CANCEL, JobAction.PAUSE, JobAction.MIGRATE)[place],
        state=JobState.RUNNING,
        options=b"{}",
        created_at=now,
        created_by=ACTOR,
        vouched_by=None,
        api_key=None,
        idempotency_key=f"key {place}",
        digest=bytes(32),
        seq=0,
        lease_until=now - 3 + place,
        scope=("", "s", "t")[place],
    )
