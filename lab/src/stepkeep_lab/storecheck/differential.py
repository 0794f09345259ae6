"""Differential test: the same operations at the same times on the model store and on a real store must not differ.

The model store is the oracle. A seed publishes, starts, claims, reports, renews, sweeps, decides, sends, cancels, makes
invalid requests, and reads what a transaction can see, for two tenants whose runs have the same ids. Every answer is
compared, and every few operations everything that can be read. The hypothesis machine in `tests/store/test_oracle.py`
shrinks what it finds; this needs only a seed, and runs against planted bugs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

from msgspec.structs import replace

from stepkeep.kernel.composition.continuation import ContinuationKind
from stepkeep.kernel.decide.decision import Claimer
from stepkeep.kernel.definition import SECOND, Definition
from stepkeep.kernel.errors import StepkeepError
from stepkeep.kernel.machine.events import TimeCame
from stepkeep.kernel.machine.journal import Cause, Entry, seal
from stepkeep.kernel.machine.outcomes import Outcome, RulesPassed
from stepkeep.kernel.machine.rows import Worker
from stepkeep.kernel.machine.states import StepState
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.plan import Plan
from stepkeep.operations.continuation import going_on, pausing, quarantine
from stepkeep.operations.continuation.going_on import ContinuationOptions, rerun
from stepkeep.operations.people import people
from stepkeep.operations.pipeline import start, workers
from stepkeep.operations.pipeline.plans import plan_of
from stepkeep.operations.pipeline.start import start_idle
from stepkeep.operations.pipeline.transact import Claim
from stepkeep.store.change import Lease, Loaded, More, Propose, RunChange, Want, Write
from stepkeep.store.protocol import Store
from stepkeep.store.records import LAST_ID
from stepkeep_lab.storecheck.adoption_changes import WORKFLOW, continue_one
from stepkeep_lab.storecheck.bench import ACTOR, Bench, report_of, still_bench
from stepkeep_lab.storecheck.composition_changes import Composition
from stepkeep_lab.storecheck.databases import BASE, Databases, model_store, opened
from stepkeep_lab.storecheck.delivery_changes import DeliveryChanges, read_deliveries
from stepkeep_lab.storecheck.invalid_writes import INVALID_WRITES, LAST_INVALID_WRITES, LastInvalidWrite
from stepkeep_lab.storecheck.material import DEFINITIONS, OUTCOMES, QUEUES, TOKEN
from stepkeep_lab.storecheck.people_changes import PeopleChanges, read_people, write_change
from stepkeep_lab.storecheck.reading import SILENCE, difference, plain, queue_names, read_everything
from stepkeep_lab.storecheck.stream_changes import StreamChanges
from stepkeep_lab.storecheck.trigger_changes import TriggerChanges, read_triggers

TENANTS = ("acme", "acne")
LEASE = 30 * SECOND
KEYS = ("k1", "k2", "k3")
SCOPES = ("", "tenant", "a key", "another key")
BUSINESS = ("order 1", "order 2", "order 3")
FIRST_HOLDERS = {"people": BUSINESS[0], "letters": BUSINESS[1]}
MESSAGES = ("m1", "m2", "m3", "m4")
LENGTH = 80
EVERY = 10
"""After this many operations everything is read."""

INVALID_AT_ONCE = 5
PEOPLE_AT_ONCE = 6

FEWEST = 4
"""This many runs of a tenant are never deleted, or there would be nothing left to do."""

AGED = 6
"""In one life of this many, runs have thousands of journal entries before anything else happens to them."""

AGES = (2046, 2047, 5000, 2**31)
"""How many entries: around the last sequence whose message numbers fit into 32 bits, many, and more than 32 bits count.
Of the last only the latest are written; the others are as good as archived."""

ENTRIES_AT_MOST = 5000

PATIENCE = 120.0
"""Seconds after which a life that does not end counts as different from the model's, which did."""


class Differs(Exception):
    """The store did something else than the model."""


class Compared(NamedTuple):
    """What became of one life: how many operations it had, and where the store differed, if it did."""

    operations: int
    difference: str | None


Act = Callable[[Bench, int], Awaitable[Any]]
"""What is done on one of the two; the second argument is 0 for the model and 1 for the store under test."""


def compare(seed: int, databases: Databases, length: int = LENGTH) -> Compared:
    """Let the model and a fresh real store live one life."""
    return asyncio.run(_compare(seed, databases, length))


async def _compare(seed: int, databases: Databases, length: int) -> Compared:
    async with opened(model_store()) as model:
        await model.migrate()
        async with databases.fresh() as real:
            life = Comparison(seed, model, real)
            try:
                async with asyncio.timeout(PATIENCE):
                    await life.begin()
                    for _ in range(length):
                        await life.go_on()
                    await life.end()
            except Differs as difference:
                return Compared(life.count, str(difference))
            except TimeoutError:
                return Compared(life.count, f"the store did not come to an end in {PATIENCE:.0f} s")
            return Compared(life.count, None)


def is_aged(seed: int) -> bool:
    """Whether the runs of this life have long journals. Drawn apart, so that the other lives stay what they were."""
    return Random(f"age:{seed}").randrange(AGED) == 0  # noqa: S311 - chance that must come out the same again


class Tenancy:
    """What one tenant has in this life; claims and workers are pairs, the model's and the real store's."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.made = 0
        self.runs: list[str] = []
        self.claims: list[list[Claim]] = []
        self.workers: list[list[Worker]] = []


class Comparison:
    """The operations, drawn from one seed."""

    def __init__(self, seed: int, model: Store, real: Store) -> None:
        self.random = Random(seed)  # noqa: S311 - chance that must come out the same again
        # Every life has its own leanings: what all lives did equally often, few would do often enough.
        self.weights = [often * self.random.choice(LEANINGS) for often in OPERATIONS.values()]
        self.window = self.random.choice((2, 5, 9))
        self.benches = (still_bench(model), still_bench(real))
        self.tenancies = tuple(Tenancy(name) for name in TENANTS)
        self.tenancy = self.tenancies[0]
        self.names: list[dict[int, int]] = [{}, {}]
        self.plans: dict[tuple[str, str, int], list[Plan]] = {}
        self.offset = 0
        self.count = 0
        self.is_aged = is_aged(seed)
        self.people = PeopleChanges(seed)
        self.deliveries = DeliveryChanges(seed)
        self.triggers = TriggerChanges(seed)
        self.streams = StreamChanges(seed)

    async def begin(self) -> None:
        for tenancy in self.tenancies:
            await self.triggers.begin([bench.store for bench in self.benches], tenancy.name)
        for tenancy in self.tenancies:
            async for what, said in self.deliveries.begin([bench.store for bench in self.benches], tenancy.name):
                self._alike(what, said)
        for tenancy in self.tenancies:
            self.tenancy = tenancy
            for definition in DEFINITIONS:
                await self.publish(definition)
        self.names = [await queue_names(bench.store, TENANTS) for bench in self.benches]
        for tenancy in self.tenancies:
            self.tenancy = tenancy
            await self.register()
            for definition in DEFINITIONS:
                await self.start(definition)
        if self.is_aged:
            self.tenancy = self.tenancies[0]
            for run, entries in zip(self.tenancy.runs, AGES, strict=False):
                await self.grow_old(run, entries)

    async def grow_old(self, run: str, entries: int) -> None:
        """Let a run have this many more entries of which none moved anything; then it is sent a message."""
        tenant = self.tenancy.name

        async def act(bench: Bench, place: int) -> Any:
            def decide(loaded: Loaded) -> Write:
                before = loaded.runs[tenant, run]
                last = before.seq + entries
                head, sealed = before.head, []
                for seq in range(max(before.seq, last - ENTRIES_AT_MOST) + 1, last + 1):
                    entry = Entry(tenant, run, seq, before.moved_at, (Cause("message_arrived", "outside"),), ())
                    sealed.append(seal(entry, head))
                    head = sealed[-1].hash
                after = replace(before, seq=last, head=head)
                return Write(runs=[RunChange(was=before.seq, run=after)], entries=sealed)

            await bench.store.change([Want(tenant=tenant, run_id=run)], decide)

        await self.on_both(act, f"grow old by {entries} entries")
        by: dict[str, Any] = {"caller": Caller(tenant, "outside"), "message_id": "at last"}
        await self.on_both(lambda bench, place: people.send(bench.transactor, run, "other", b"{}", **by), "send")

    async def go_on(self) -> None:
        """One more operation."""
        self.tenancy = self.random.choice(self.tenancies)
        [act] = self.random.choices(list(OPERATIONS), self.weights)
        await act(self)
        if self.count % EVERY == 0:
            await self.change_people()
            await self.change_deliveries()
            await self.change_triggers()
            await self.change_streams()
            await self.compare()

    async def change_people(self) -> None:
        """A few changes of people on both, of which some are refused, and everything that can be read of people."""
        for _ in range(PEOPLE_AT_ONCE):
            kind, row = self.people.draw(self.tenancy.name)
            said = [await write_change(bench.store, self.tenancy.name, kind, row) for bench in self.benches]
            if said[0] != said[1]:
                raise Differs(f"a change of {kind}: {said[0]}, not {said[1]}")
        seen = [plain(await read_people(bench.store, TENANTS), {}) for bench in self.benches]
        if found := difference(*seen):
            raise Differs(f"people: {found}")

    async def change_deliveries(self) -> None:
        """What relays and people do to deliveries, on both, and everything that can be read of them."""
        stores = [bench.store for bench in self.benches]
        for store in stores:
            store.clock_offset = self.offset
        async for what, said in self.deliveries.go_on(stores, self.tenancy.name):
            self._alike(what, said)
        if self.deliveries.is_there:
            runs = self.tenancy.runs[-self.window :]
            seen = [plain(await _answered(read_deliveries(store, self.tenancy.name, runs)), {}) for store in stores]
            self._alike("deliveries", seen)

    async def change_triggers(self) -> None:
        """What is done to triggers on the ends of runs, on both, and every firing."""
        stores = [bench.store for bench in self.benches]
        for store in stores:
            store.clock_offset = self.offset
        async for what, said in self.triggers.go_on(stores, self.tenancy.name):
            self._alike(f"triggers: {what}", said)
        for tenancy in self.tenancies:
            self._alike("firings", [await read_triggers(store, tenancy.name) for store in stores])

    async def change_streams(self) -> None:
        """What attempts append to streams, on both, and what their runs have of them."""
        stores = [bench.store for bench in self.benches]
        for store in stores:
            store.clock_offset = self.offset
        async for what, said in self.streams.go_on(stores, self.tenancy.name, self.tenancy.claims):
            self._alike(what, said)

    def _alike(self, what: str, said: list[Any]) -> None:
        if found := difference(plain(said[0], {}), plain(said[1], {})):
            raise Differs(f"{what}: {found}")

    async def end(self) -> None:
        """What would spoil a life comes last."""
        await self.compare()
        for tenancy in self.tenancies:
            self.tenancy = tenancy
            tenancy.runs += await continue_one(self.on_both, self.plans[tenancy.name, *WORKFLOW], tenancy.name)
        await self._compose()
        # Leases and pauses of deliveries are over by then.
        self.offset += 400 * SECOND
        stores = [bench.store for bench in self.benches]
        for store in stores:
            store.clock_offset = self.offset
        for tenancy in self.tenancies:
            async for what, said in self.deliveries.end(stores, tenancy.name):
                self._alike(what, said)
        for tenancy in self.tenancies:
            self.tenancy = tenancy
            for lie in LAST_INVALID_WRITES:
                await self._tell(lie)
        await self.compare()

    async def _compose(self) -> None:
        """Children, resources, slots and jobs, of which both tenants have the same."""
        composed = [Composition(self.on_both, tenancy.name) for tenancy in self.tenancies]
        for stage in (Composition.begin, Composition.end, Composition.look):
            for tenancy, one in zip(self.tenancies, composed, strict=True):
                self.tenancy = tenancy
                await stage(one)

    async def _tell(self, lie: LastInvalidWrite) -> None:
        await self.on_both(lambda bench, place: lie(bench.store, self.tenancy.name), lie.__name__.replace("_", " "))

    # -- the same on both --------------------------------------------------------------------------------------------
    async def on_both(self, act: Act, what: str) -> list[Any]:
        """Let both do it; they must answer alike."""
        self.count += 1
        self.tenancy.made += 1
        answers, said = [], []
        for place, bench in enumerate(self.benches):
            bench.store.clock_offset = self.offset
            with _named(self.tenancy.made):
                answer = await _answered(act(bench, place))
            if place == 0 and isinstance(answer, Exception) and not isinstance(answer, StepkeepError):
                raise answer  # no refusal: this life itself is broken
            answers.append(answer)
            said.append(plain(answer, self.names[place]))
        if found := difference(*said):
            raise Differs(f"{what}: {found}")
        return answers

    async def compare(self) -> None:
        """Read everything; it must be the same."""
        model, real = [
            await _answered(read_everything(bench.store, TENANTS, BUSINESS, self.count)) for bench in self.benches
        ]
        if isinstance(real, Exception):
            raise Differs(f"nothing can be read: {type(real).__name__}: {real}")
        if found := difference(model, real):
            raise Differs(found)

    def run(self) -> str:
        """A run of this tenant, more likely than not one of the latest."""
        runs = self.tenancy.runs
        return self.random.choice(runs[-self.window :] if self.random.random() < 0.7 else runs)

    async def run_with(self, state: StepState) -> str:
        """More likely than not a run of this tenant that has a step in this state, if there is one."""
        model, tenant = self.benches[0].store, self.tenancy.name
        if self.random.random() < 0.3:
            return self.run()
        steps = [step for run in self.tenancy.runs for step in await model.read_steps(tenant, run)]
        fitting = sorted({step.run_id for step in steps if step.state is state})
        return self.random.choice(fitting) if fitting else self.run()

    def claimed(self) -> list[Claim] | None:
        """A claim of this tenant, as likely as not one of the latest."""
        claims = self.tenancy.claims
        if not claims:
            return None
        return self.random.choice(claims[-4:] if self.random.random() < 0.5 else claims)

    # -- time --------------------------------------------------------------------------------------------------------
    async def time_passes(self) -> None:
        """Some time, or just as much as it takes for the next thing to be due; that very moment is where errors are."""
        moments = sorted(moment - BASE for moment in await self._moments() if moment - BASE > self.offset)
        if moments and self.random.random() < 0.6:
            self.offset = moments[0]
        else:
            self.offset += self.random.choice((1, 5, 20, 31, 61)) * SECOND

        async def act(bench: Bench, place: int) -> Any:
            ready = [await bench.store.has_ready([queue]) for queue in await self._queues(bench, [True])]
            silent = await bench.store.silent_workers(SILENCE)
            return await bench.store.now(), await self._due(bench), silent, ready

        await self.on_both(act, "time passes")

    async def _due(self, bench: Bench) -> list[tuple[str, str, int]]:
        """What is due, in an order that does not hang on the store; a run's own timer has the number -1."""
        found = await bench.store.find_due(500)
        return sorted((due.tenant, due.run_id, -1 if due.no is None else due.no) for due in found)

    async def _moments(self) -> list[int]:
        """When something will be due, as the model knows it."""
        model, tenant = self.benches[0].store, self.tenancy.name
        moments: list[int | None] = []
        for run in self.tenancy.runs:
            record = await model.read_run(tenant, run)
            moments += [step.due_at for step in await model.read_steps(tenant, run)]
            moments.append(record.run.due_at if record else None)
        return [moment for moment in moments if moment is not None]

    async def sweep(self) -> None:
        """As every sweep does, but for the order: timers that are due at the same moment come in any."""

        async def act(bench: Bench, place: int) -> Any:
            events = [
                TimeCame(tenant=tenant, run_id=run_id, actor="sweep", no=None if no < 0 else no)
                for tenant, run_id, no in await self._due(bench)
            ]
            return await bench.transactor.submit_all(events), await workers.retire_silent(bench.store, actor="sweep")

        await self.on_both(act, "sweep")

    # -- definitions and runs ----------------------------------------------------------------------------------------
    async def publish(self, definition: Definition | None = None) -> None:
        what = definition or self.random.choice(DEFINITIONS)
        plans: list[Plan] = []

        async def act(bench: Bench, place: int) -> Any:
            plans.append(await bench.publish(what, self.tenancy.name))
            return plans[-1].digest

        await self.on_both(act, "publish")
        self.plans[self.tenancy.name, what.name, what.version] = plans

    async def start(self, definition: Definition | None = None) -> None:
        random, what = self.random, definition or self.random.choice((*DEFINITIONS, *DEFINITIONS[-2:]))
        plans = self.plans[self.tenancy.name, what.name, what.version]
        request: dict[str, Any] = {
            "caller": Caller(self.tenancy.name, ACTOR),
            "input": random.choice((b"{}", b'{"n":2}')),
            "idempotency_key": random.choice((None, *KEYS)),
            "scope": SCOPES[len(self.tenancy.runs) % len(SCOPES)],
            "business_key": random.choice((None, *BUSINESS)),
            "priority": random.choice((None, None, 0, 3)),
            "start_now": random.random() < 0.9,
        }
        if definition is not None:  # one of the first, which all have keys
            key = f"{what.name} {what.version}"
            request |= {"idempotency_key": key, "business_key": FIRST_HOLDERS.get(what.name), "start_now": True}
        started = await self.on_both(lambda bench, place: bench.begin(plans[place], **request), "start")
        self._remember(started[0])

    def _remember(self, started: Any) -> None:
        if not isinstance(started, Exception) and started.created:
            self.tenancy.runs.append(started.run_id)

    async def start_idle(self) -> None:
        run, by = self.run(), {"caller": Caller(self.tenancy.name, ACTOR)}
        await self.on_both(lambda bench, place: start_idle(bench.transactor, run, **by), "start an idle run")

    async def rerun(self) -> None:
        run, key = self.run(), self.random.choice((None, *KEYS))
        actor = f"{ACTOR}-{len(self.tenancy.runs) % 3}"
        by: dict[str, Any] = {"caller": Caller(self.tenancy.name, actor), "idempotency_key": key}
        by["scope"] = SCOPES[len(self.tenancy.runs) % len(SCOPES)]
        answers = await self.on_both(lambda bench, place: rerun(bench.transactor, bench.starter, run, **by), "rerun")
        self._remember(answers[0])

    async def continue_run(self) -> None:
        """Retry or fork a run; most are refused, because they have not ended."""
        run, key = self.run(), self.random.choice((None, *KEYS))
        how, number = self.random.choice(tuple(ContinuationKind)), self.random.randrange(9)
        tenant = self.tenancy.name

        async def act(bench: Bench, place: int) -> Any:
            plan = await plan_of(bench.transactor, tenant, run)
            start = None if how is ContinuationKind.RETRY else plan.steps[number % plan.size].name
            by: dict[str, Any] = {"caller": Caller(tenant, ACTOR), "idempotency_key": key}
            return await going_on.continue_run(
                bench.transactor, bench.starter, run, ContinuationOptions(how=how, start=start), **by
            )

        answers = await self.on_both(act, "go on")
        self._remember(answers[0])

    # -- workers -----------------------------------------------------------------------------------------------------
    async def register(self) -> None:
        owner = (None, "ann", "bea")[len(self.tenancy.workers) % 3]
        by: dict[str, Any] = {"tenant": self.tenancy.name, "app": "life", "capacity": 3, "owner": owner}
        answers = await self.on_both(lambda bench, place: workers.register(bench.store, **by), "register")
        self.tenancy.workers.append(answers)

    async def worker_life(self) -> None:
        rows = self.random.choice(self.tenancy.workers)
        act = self.random.choice(
            (workers.beat, workers.beat, workers.mark_busy, workers.mark_idle, workers.drain, workers.shut_down)
        )
        answers = await self.on_both(lambda bench, place: act(bench.store, rows[place]), act.__name__)
        if not isinstance(answers[0], Exception):
            rows[:] = answers

    async def raw_beat(self) -> None:
        """A heartbeat as it comes over the wire, perhaps of a former life of that worker."""
        rows, incarnation = self.random.choice(self.tenancy.workers), self.random.choice((0, -1, -1, 1))
        name = self.random.choice((self.tenancy.name, *TENANTS))
        await self.on_both(
            lambda bench, place: bench.store.beat(name, rows[place].no, rows[place].incarnation + incarnation), "beat"
        )

    async def _queues(self, bench: Bench, chosen: Sequence[bool]) -> list[int]:
        """Some of the tenant's queues, the same ones on both stores."""
        names = self.names[self.benches.index(bench)]
        there = [queue for queue, _ in await bench.store.list_queues(self.tenancy.name)]
        there.sort(key=names.__getitem__)
        return [queue for place, queue in enumerate(there) if chosen[place % len(chosen)]]

    def _choice(self) -> list[bool]:
        """Which queues a worker asks for: a single one, or most of them."""
        if self.random.random() < 0.4:
            only = self.random.randrange(QUEUES)
            return [place == only for place in range(QUEUES)]
        return [self.random.random() < 0.8 for _ in range(QUEUES)]

    def _hold(self, given: list[Any]) -> None:
        if not isinstance(given[0], Exception):
            self.tenancy.claims += [list(claims) for claims in zip(*given, strict=True)]

    async def claim(self) -> None:
        rows, limit, chosen = self.random.choice(self.tenancy.workers), self.random.choice((1, 2, 4)), self._choice()

        async def act(bench: Bench, place: int) -> Any:
            worker, queues = rows[place], frozenset(await self._queues(bench, chosen))
            claimer = Claimer(actor=worker.id, worker=worker.no, lease=LEASE, slots=limit, queues=queues)
            return await bench.transactor.claim(claimer, limit=limit)

        self._hold(await self.on_both(act, "claim"))

    async def report(self) -> None:
        if claims := self.claimed():
            await self._report([claims], self.random.choice(OUTCOMES), self.random.randrange(3))

    async def _report(self, many: Sequence[list[Claim]], outcome: Outcome, room: int) -> None:
        rows = self.random.choice(self.tenancy.workers)

        async def act(bench: Bench, place: int) -> Any:
            worker, queues = rows[place], frozenset(await self._queues(bench, [True]))
            claimer = Claimer(actor=worker.id, worker=worker.no, lease=LEASE, slots=room, queues=queues)
            events = [report_of(claims[place], outcome) for claims in many]
            return await bench.transactor.report(events, claimer if room else None)

        answers = await self.on_both(act, "report")
        if not isinstance(answers[0], Exception):
            self._hold([claimed for _, claimed in answers])

    async def work(self) -> None:
        """A worker does its job: it claims, and reports what is expected of it, all at once."""
        before = len(self.tenancy.claims)
        await self.claim()
        fresh = self.tenancy.claims[before:]
        for judged, outcome in ((True, RulesPassed()), (False, OUTCOMES[0])):
            if many := [claims for claims in fresh if _is_judged(claims[0]) is judged]:
                await self._report(many, outcome, 0)

    async def renew(self) -> None:
        """Leases of one worker, perhaps under fences that are not theirs any more."""
        length = self.random.choice((LEASE, LEASE, 5 * SECOND))
        leases = [
            Lease(self.tenancy.name, claims[0].run_id, claims[0].step.no, claims[0].step.fence + wrong, length)
            for claims in self.tenancy.claims[-8:]
            for wrong in self.random.choices((0, -1, 1), (4, 1, 1))
        ]
        some = {(lease.run_id, lease.no): lease for lease in leases}

        async def act(bench: Bench, place: int) -> Any:
            renewed = await bench.store.renew(list(some.values()))
            return sorted(renewed, key=lambda one: (one.run_id, one.no, one.fence))

        await self.on_both(act, "renew")

    # -- people and the outside --------------------------------------------------------------------------------------
    async def decide(self) -> None:
        run, random = await self.run_with(StepState.AWAITING_APPROVAL), self.random
        by: dict[str, Any] = {"approve": random.random() < 0.8, "caller": Caller(self.tenancy.name, "ann")}
        by |= {"step": random.choice((None, None, "g", "d"))}
        await self.on_both(lambda bench, place: people.decide_gate(bench.transactor, run, **by), "decide")

    async def complete(self) -> None:
        run, random = await self.run_with(StepState.AWAITING_COMPLETION), self.random
        by: dict[str, Any] = {
            "token": random.choice((TOKEN, TOKEN, "wrong")),
            "outcome": random.choice(("Succeeded", "Succeeded", "Failed", "Cancelled")),
            "caller": Caller(self.tenancy.name, "ann"),
            "output": random.choice((None, b'{"by":"hand"}')),
            "evidence": ("e1",),
        }
        await self.on_both(lambda bench, place: people.complete(bench.transactor, run, "m", **by), "complete")

    async def reissue(self) -> None:
        run = await self.run_with(StepState.AWAITING_COMPLETION)
        by: dict[str, Any] = {"token": TOKEN, "reason": "lost", "caller": Caller(self.tenancy.name, "ann")}
        await self.on_both(lambda bench, place: people.reissue_token(bench.transactor, run, "m", **by), "reissue")

    async def send(self) -> None:
        run, random = await self.run_with(StepState.AWAITING_EVENT), self.random
        name = random.choice(("paid", "paid", "other"))
        by: dict[str, Any] = {"caller": Caller(self.tenancy.name, "outside"), "message_id": random.choice(MESSAGES)}
        await self.on_both(lambda bench, place: people.send(bench.transactor, run, name, b'{"m":1}', **by), "send")

    async def cancel(self) -> None:
        run, compensate = self.run(), self.random.random() < 0.5
        by: dict[str, Any] = {"caller": Caller(self.tenancy.name, "cyd"), "compensate": compensate}
        await self.on_both(lambda bench, place: people.cancel(bench.transactor, run, **by), "cancel")

    async def pause(self) -> None:
        """A person pauses a run, or resumes one; perhaps one that is not paused."""
        run, act = self.run(), pausing.pause_run if self.random.random() < 0.6 else pausing.resume_run
        by: dict[str, Any] = {"caller": Caller(self.tenancy.name, "cyd")}
        await self.on_both(lambda bench, place: act(bench.transactor, run, **by), "pause")

    async def set_aside(self) -> None:
        """An operator sets a run aside, or lets one go on that was; perhaps one that never was."""
        tenant, run, random = self.tenancy.name, self.run(), self.random
        aside = [one.run_id for one in await self.benches[0].store.list_quarantined(tenant)]
        by: dict[str, Any] = {"caller": Caller(tenant, random.choice(("ann", "bea"))), "reason": "why"}
        if aside and random.random() < 0.75:
            released = random.choice((random.choice(aside), random.choice(aside), run))
            await self.on_both(lambda bench, place: quarantine.release(bench.transactor, released, **by), "release")
        else:
            await self.on_both(lambda bench, place: quarantine.quarantine(bench.transactor, run, **by), "quarantine")

    # -- retention ---------------------------------------------------------------------------------------------------
    async def retire(self) -> None:
        """Some runs are to be deleted, whether they have ended or not; only those that have are."""
        tenant, runs = self.tenancy.name, self.tenancy.runs
        some = self.random.sample(runs, min(4, max(len(runs) - FEWEST, 0)))

        async def act(bench: Bench, place: int) -> Any:
            return sorted(await bench.store.delete_runs(tenant, some))

        deleted = (await self.on_both(act, "retire"))[0]
        if not isinstance(deleted, Exception):
            self.tenancy.runs = [run for run in runs if run not in deleted]

    async def forget(self) -> None:
        """Old idempotency keys are forgotten, where their runs are gone."""
        tenant, limit = self.tenancy.name, self.random.choice((1, 5))
        before = self.random.choice((self.run(), LAST_ID, LAST_ID))
        await self.on_both(lambda bench, place: bench.store.forget_keys(tenant, before, limit), "forget keys")

    # -- the store itself --------------------------------------------------------------------------------------------
    async def lie(self) -> None:
        """A few lies, each to the first run that it fits."""
        lies, chance, tenant = (
            self.random.sample(INVALID_WRITES, INVALID_AT_ONCE),
            self.random.getrandbits(32),
            self.tenancy.name,
        )
        runs = self.random.sample(self.tenancy.runs, len(self.tenancy.runs))

        async def act(bench: Bench, place: int) -> Any:
            told = {}
            for lie in lies:
                for run in runs:
                    answer = await lie(bench.store, tenant, run, Random(chance))  # noqa: S311 - the same for both
                    if answer is not None:
                        told[lie.__name__.replace("_", " ")] = answer
                        break
            return told

        await self.on_both(act, "lie")

    async def look(self) -> None:
        """What a transaction gets to see, all at once or bit by bit."""
        random, tenant = self.random, self.tenancy.name
        wants = tuple(
            Want(
                tenant=tenant,
                run_id=run,
                steps=tuple(sorted(random.sample(range(7), 2))),
                whole=random.random() < 0.2,
                waiting=random.random() < 0.4,
                inbox=random.random() < 0.4,
                messages=tuple(random.sample(MESSAGES, 2)),
                outputs=(random.randrange(5),),
                input=random.random() < 0.3,
                duties=run[-1] in "02468ace",
            )
            for run in sorted(random.sample(self.tenancy.runs, min(3, len(self.tenancy.runs))))
        )
        more = More(
            wants=wants[2:],
            idempotency=tuple(
                (tenant, random.choice(("start", "rerun")), key, scope) for key in KEYS for scope in SCOPES
            ),
            business_keys=((tenant, random.choice(BUSINESS)),),
        )
        proposed, limit, after = random.random() < 0.6, random.choice((1, 2, 5)), random.choice((None, None, 20))
        chosen = self._choice()

        async def act(bench: Bench, place: int) -> Any:
            seen: list[Loaded] = []

            def decide(loaded: Loaded) -> More | Write:
                if seen and seen[-1] is loaded:
                    return Write()
                seen.append(loaded)  # anew, where the store had to begin again to lock in order
                return more

            queues = tuple(sorted(await self._queues(bench, chosen)))
            ready = await bench.store.has_ready(queues)
            since = None if after is None else await bench.store.now() - after * SECOND
            propose = Propose(queues=queues, limit=limit, after=since) if proposed else None
            await bench.store.change(wants[:2], decide, propose)
            return ready, seen[-1]

        await self.on_both(act, "look")


def _is_judged(claim: Claim) -> bool:
    """Whether it is rules that this claim is about, of a step or of the whole run."""
    return claim.step.state is StepState.VALIDATING or claim.step.no == 2 * claim.plan.size


@contextmanager
def _named(made: int) -> Iterator[None]:
    """New things get the same names on both stores, and in both tenants."""
    names = (f"00000000-0000-7000-8000-{made:06}{place:06}" for place in range(9))

    def next_name(*given: object) -> str:
        return next(names)

    with (
        patch.object(start, "uuid7", next_name),
        patch.object(going_on, "uuid7", next_name),
        patch.object(workers, "new_id", next_name),
    ):
        yield


async def _answered(work: Awaitable[Any]) -> Any:
    try:
        return await work
    except Exception as problem:  # noqa: BLE001 - refusals are answers, and must be the same everywhere
        return problem


OPERATIONS: dict[Callable[[Comparison], Awaitable[None]], int] = {
    Comparison.time_passes: 7,
    Comparison.sweep: 6,
    Comparison.publish: 1,
    Comparison.start: 4,
    Comparison.start_idle: 1,
    Comparison.rerun: 2,
    Comparison.continue_run: 3,
    Comparison.register: 1,
    Comparison.worker_life: 6,
    Comparison.raw_beat: 4,
    Comparison.claim: 7,
    Comparison.report: 8,
    Comparison.work: 12,
    Comparison.renew: 5,
    Comparison.decide: 6,
    Comparison.complete: 4,
    Comparison.reissue: 2,
    Comparison.send: 7,
    Comparison.cancel: 1,
    Comparison.pause: 3,
    Comparison.set_aside: 4,
    Comparison.retire: 4,
    Comparison.forget: 4,
    Comparison.lie: 12,
    Comparison.look: 10,
}
"""What may happen, and how often on average."""

LEANINGS = (0.3, 1, 1, 3)
