"""Lock scenarios: another session holds a lock on a real PostgreSQL server, and a store must react correctly.

Each scenario is a deterministic script: the other session takes its lock, the store starts, the server is asked whether
it waits, time passes by the server's own clock, the lock is released. A scenario raises `Failed` if the store waits
where it must not, decides by an old time, or could deadlock.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import asyncpg
from msgspec.structs import replace

from stepkeep.kernel.decide.decision import Accepted
from stepkeep.kernel.definition import SECOND, Definition
from stepkeep.kernel.machine import outcomes
from stepkeep.kernel.machine.outcomes import Outcome
from stepkeep.kernel.machine.rows import rows_of
from stepkeep.kernel.machine.states import Category
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.pipeline.transact import Claim
from stepkeep.store.change import IdempotencyKey, Lease, Loaded, NewRun, Want, Write
from stepkeep.store.deliveries import WHOLE, Action, Report, Takes
from stepkeep.store.postgres.store import PostgresStore
from stepkeep.store.principals import PeopleChange, PeopleEntry, seal_people_entry
from stepkeep.store.rows import RESOURCES_LOCK, SinkRow
from stepkeep_lab.storecheck.bench import TENANT, Bench, still_bench, task
from stepkeep_lab.storecheck.databases import BASE, REAL_CLOCK, SET_CLOCK, PostgresDatabases, opened
from stepkeep_lab.storecheck.invalid_writes import newborn

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

FLAT = Definition(name="flat", version=1, steps=(task("a"),))
NEEDY = Definition(name="needy", version=1, steps=(task("a", resources={"repo": "exclusive"}),))
LEASE = 30 * SECOND
PATIENCE, BRIEFLY = 20.0, 3.0
HOLD = "select from runs where id = $1 for update"
WAITS = (
    "select count(*) from pg_stat_activity"
    " where wait_event_type = 'Lock' and datname = current_database() and pid <> pg_backend_pid()"
)


class Failed(Exception):
    """The store did what it must not."""


def require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Failed(otherwise)


class Scene:
    """A store with two claimed runs, a rival, and the clock of both."""

    def __init__(self, bench: Bench, rival: Connection, claims: list[Claim]) -> None:
        self.bench, self.rival, self.claims = bench, rival, claims

    @property
    def leases(self) -> list[Lease]:
        return [Lease(TENANT, one.run_id, one.step.no, one.step.fence, LEASE) for one in self.claims]

    def forget(self) -> None:
        """Remember nothing of the runs: the next transaction reads them."""
        for claim in self.claims:
            self.bench.transactor.forget(claim)

    async def time_passes(self, microseconds: int) -> None:
        await self.rival.execute(SET_CLOCK, BASE + microseconds)

    async def waits(self, work: asyncio.Task[Any]) -> bool:
        """Whether it comes to wait for a lock, rather than to an end."""
        async with asyncio.timeout(PATIENCE):
            while not work.done():
                if await self.rival.fetchval(WAITS):
                    return True
                await asyncio.sleep(0.002)
        return False

    @asynccontextmanager
    async def holding(self, run_id: str) -> AsyncIterator[None]:
        """The rival holds this run's row."""
        async with self.rival.transaction():
            await self.rival.execute(HOLD, run_id)
            yield

    async def can_have(self, statement: str, *given: Any) -> bool:
        """Whether the rival gets this too, without waiting for those who wait for the rival."""
        await self.rival.execute("set local lock_timeout = '300ms'")
        try:
            async with self.rival.transaction():
                await self.rival.execute(statement, *given)
        except asyncpg.LockNotAvailableError:
            return False
        except asyncpg.DeadlockDetectedError:
            return False
        return True


# -- what a late one is told -----------------------------------------------------------------------------------------


async def late_report(scene: Scene, outcome: Outcome | None = None) -> None:
    """A report that waited until its lease had run out is refused."""
    [claim, _] = scene.claims
    async with scene.holding(claim.run_id):
        work = asyncio.create_task(scene.bench.report_all([claim], outcome))
        require(await scene.waits(work), "a report did not wait for the holder of its run")
        await scene.time_passes(LEASE + SECOND)
    [answer] = await work
    require(not isinstance(answer, Accepted), "a report was believed although its lease ran out while it waited")


async def late_failure(scene: Scene) -> None:
    """The same for a report that changes more than what moves when all goes well."""
    await late_report(scene, outcomes.Failed(category=Category.TRANSIENT, error="not yet"))


async def late_look(scene: Scene) -> None:
    """The same for a report that has to look at its run."""
    scene.forget()
    await late_report(scene)


async def late_renewal(scene: Scene) -> None:
    """A lease that ran out while its renewal waited is not renewed."""
    async with scene.holding(scene.claims[0].run_id):
        work = asyncio.create_task(scene.bench.store.renew(scene.leases[:1]))
        require(await scene.waits(work), "a renewal did not wait for the holder of its run")
        await scene.time_passes(LEASE + SECOND)
    require(await work == [], "a lease was renewed that ran out while the renewal waited")


async def clock_goes_on(scene: Scene) -> None:
    """The database's own clock goes on inside a transaction, however long it has to wait in it."""
    async with scene.rival.transaction():
        before = await scene.rival.fetchval(f"select {REAL_CLOCK}()")
        await scene.rival.execute("select pg_sleep(0.001)")
        after = await scene.rival.fetchval(f"select {REAL_CLOCK}()")
    require(before < after, "the database's clock stands still inside a transaction")


# -- who waits, and in which order -----------------------------------------------------------------------------------


async def claim_passes_over(scene: Scene) -> None:
    """A claim passes over a run that is held, and gets what is free."""
    plan = await scene.bench.publish(FLAT)
    held, free = [(await scene.bench.begin(plan)).run_id for _ in range(2)]
    async with scene.holding(held):
        try:
            async with asyncio.timeout(BRIEFLY):
                claims = await scene.bench.claim(2)
        except TimeoutError:
            raise Failed("a claim waits for a run that another transaction holds") from None
        require([one.run_id for one in claims] == [free], "a claim took a run that another transaction holds")


async def deletion_passes_over(scene: Scene) -> None:
    """Deleting finished runs passes over one that is held, and deletes the other."""
    await scene.bench.report_all(scene.claims)
    held, free = (claim.run_id for claim in scene.claims)
    async with scene.holding(held):
        work = asyncio.create_task(scene.bench.store.delete_runs(TENANT, [held, free]))
        require(not await scene.waits(work), "a deletion waits for a run that another transaction holds")
        require(await work == [free], "a deletion took a run that another transaction holds")


async def report_in_order(scene: Scene) -> None:
    """Who waits for a run holds none that comes after it."""
    await _in_order(scene, lambda: scene.bench.report_all(scene.claims))


async def look_in_order(scene: Scene) -> None:
    """The same for who locks runs to look at them."""
    scene.forget()
    await report_in_order(scene)


async def renewal_in_order(scene: Scene) -> None:
    """A renewal of several leases waits for the first run while it holds none that comes after it."""
    await _in_order(scene, lambda: scene.bench.store.renew(scene.leases))


async def _in_order(scene: Scene, act: Callable[[], Awaitable[Any]]) -> None:
    first, second = sorted(claim.run_id for claim in scene.claims)
    async with scene.holding(first):
        work = asyncio.ensure_future(act())
        require(await scene.waits(work), "the store did not wait for the holder of a run")
        free = await scene.can_have(f"{HOLD} nowait", second)
    await work
    require(free, "who waits for one run holds another that comes after it")


async def business_keys_in_order(scene: Scene) -> None:
    """Business keys are taken in one order, whatever the order of the runs."""
    taken = "insert into business_keys (tenant, key, run_id) values ($1, $2, $3)"
    await _keys_in_order(scene, taken, lambda run, key: newborn(TENANT, run, business_key=key))


async def idempotency_keys_in_order(scene: Scene) -> None:
    """Idempotency keys are taken in one order, whatever the order of the runs."""

    def promising(run: str, key: str) -> NewRun:
        promise = IdempotencyKey(tenant=TENANT, operation="start", key=key, fingerprint="f", run_id=run)
        return replace(newborn(TENANT, run), rows=rows_of([promise]))

    taken = (
        "insert into idempotency_keys (tenant, operation, key, fingerprint, run_id) values ($1, 'start', $2, 'f', $3)"
    )
    await _keys_in_order(scene, taken, promising)


async def _keys_in_order(scene: Scene, taken: str, born: Callable[[str, str], NewRun]) -> None:
    runs = [f"dddddddd-0000-7000-8000-{number:012}" for number in range(3)]
    what = Write(new_runs=[born(runs[0], "second"), born(runs[1], "first")])
    transaction = scene.rival.transaction()
    await transaction.start()
    await scene.rival.execute(taken, TENANT, "first", runs[2])
    work = asyncio.ensure_future(scene.bench.store.change((), lambda loaded: what))
    waited = await scene.waits(work)
    free = await scene.can_have(taken, TENANT, "second", runs[2])
    await transaction.rollback()
    [problem] = await asyncio.gather(work, return_exceptions=True)
    require(waited, "the store did not wait for the session that had taken a key first")
    # Of two that wait in a circle the server ends one, whichever it is.
    require(free and problem is None, "two transactions that take the same keys wait for each other")


# -- people -----------------------------------------------------------------------------------------------------------

SCHEMA = "(select relnamespace::regnamespace from pg_class where oid = 'people_journal'::regclass)"
PEOPLE = f"hashtextextended(format('people %s %L', {SCHEMA}, $1::text), 1701)"
SHARE_PEOPLE = f"select pg_advisory_xact_lock_shared({PEOPLE})"
LOCK_PEOPLE = f"select pg_advisory_xact_lock({PEOPLE})"


async def change_of_people_waits(scene: Scene) -> None:
    """A change of people waits for a decision that has read them, and is later than it."""
    times: list[int] = []
    entry = seal_people_entry(PeopleEntry(TENANT, 1, BASE, "changed", "ann", "root"), None)

    def make(now: int) -> PeopleChange:
        times.append(now)
        return PeopleChange(entry=entry)

    async with scene.rival.transaction():
        await scene.rival.execute(SHARE_PEOPLE, TENANT)
        work = asyncio.create_task(scene.bench.store.people.write(TENANT, make))
        require(await scene.waits(work), "a change of people did not wait for a decision that has read them")
        await scene.time_passes(SECOND)
    await work
    require(times == [BASE + SECOND], "a change of people is dated before the decision for which it waited")


async def decision_waits_for_people(scene: Scene) -> None:
    """A decision waits for a change of the people whose rights it reads, and goes by the time after it."""
    async with scene.rival.transaction():
        await scene.rival.execute(LOCK_PEOPLE, TENANT)
        work = asyncio.create_task(_decided_at(scene))
        require(await scene.waits(work), "a decision did not wait for a change of the people whose rights it reads")
        await scene.time_passes(SECOND)
    require(await work == BASE + SECOND, "a decision is dated before the change of people for which it waited")


async def decisions_share_people(scene: Scene) -> None:
    """Two decisions read the same people without waiting for each other."""
    async with scene.rival.transaction():
        await scene.rival.execute(SHARE_PEOPLE, TENANT)
        work = asyncio.create_task(_decided_at(scene))
        require(not await scene.waits(work), "a decision waited for another one that reads the same people")
    await work


async def _decided_at(scene: Scene) -> int:
    """The time of a decision by ann."""
    times: list[int] = []

    def decide(loaded: Loaded) -> Write:
        times.append(loaded.now)
        return Write()

    wants = [Want(tenant=TENANT, run_id=scene.claims[0].run_id, people=(Caller(TENANT, "ann"),))]
    await scene.bench.store.change(wants, decide)
    return times[-1]


# -- deliveries -------------------------------------------------------------------------------------------------------

HOLD_CURSOR = "select from deliveries where run_id = $1 for update"


async def _two_cursors(scene: Scene) -> list[str]:
    """The two runs with a cursor each, of a sink that takes what they emit."""
    row = SinkRow(
        tenant=TENANT,
        name="shop",
        kind="host",
        takes=int(Takes.EMITTED),
        prefix="",
        patterns=("*",),
        options=b"{}",
        created_at=BASE,
        created_by="ann",
    )
    await scene.bench.store.deliveries.save_sink(row, _done("added"))
    told = outcomes.Completed(output=b"1", emit=(outcomes.Emitted("told", b"1"),))
    await scene.bench.report_all(scene.claims, told)
    return sorted(claim.run_id for claim in scene.claims)


def _done(what: str, run_id: str | None = None) -> Action:
    given: dict[str, Any] = {"tenant": TENANT, "at": 0, "actor": "ann", "sink": "shop", "reason": "so"}
    return Action(action=what, run_id=run_id, seq=None, number=None, **given)


async def delivery_claim_passes_over(scene: Scene) -> None:
    """A relay passes over a cursor that an emitting transaction or another relay holds, and gets what is free."""
    held, free = await _two_cursors(scene)
    async with scene.rival.transaction():
        await scene.rival.execute(HOLD_CURSOR, held)
        try:
            async with asyncio.timeout(BRIEFLY):
                claimed = await scene.bench.store.deliveries.claim(TENANT, [("shop", 2)], "w", LEASE)
        except TimeoutError:
            raise Failed("a claim waits for a cursor that another transaction holds") from None
    require([one.run_id for one in claimed] == [free], "a claim took a cursor that another transaction holds")


async def delivery_report_beside_an_event(scene: Scene) -> None:
    """A report that waits for a transaction that emits leaves the cursor due: nothing is stranded between the two."""
    [run, _] = await _two_cursors(scene)
    claimed = await scene.bench.store.deliveries.claim(TENANT, [("shop", 2)], "w", LEASE)
    [mine] = [one for one in claimed if one.run_id == run]
    which: dict[str, Any] = {"tenant": TENANT, "run_id": run, "sink": "shop", "fence": mine.fence}
    report = Report(sent=mine.last, sent_number=WHOLE, **which)
    async with scene.rival.transaction():
        await scene.rival.execute("update deliveries set last = last + 1 where run_id = $1", run)
        work = asyncio.create_task(scene.bench.store.deliveries.report([report]))
        require(await scene.waits(work), "a report did not wait for a transaction that moves its cursor")
    require(await work == [True], "a report was refused although no other relay claimed its cursor")
    [after] = await scene.bench.store.deliveries.read_cursors(TENANT, run)
    require(after.ready_at is not None, "a report left a cursor idle that has an event to deliver")


async def delivery_taken_over(scene: Scene) -> None:
    """A report that waits while another relay claims its cursor is refused."""
    [run, _] = await _two_cursors(scene)
    claimed = await scene.bench.store.deliveries.claim(TENANT, [("shop", 2)], "w", LEASE)
    [mine] = [one for one in claimed if one.run_id == run]
    which: dict[str, Any] = {"tenant": TENANT, "run_id": run, "sink": "shop", "fence": mine.fence}
    async with scene.rival.transaction():
        await scene.rival.execute("update deliveries set fence = fence + 1 where run_id = $1", run)
        work = asyncio.create_task(scene.bench.store.deliveries.report([Report(sent=1, sent_number=WHOLE, **which)]))
        require(await scene.waits(work), "a report did not wait for the relay that takes its cursor over")
    require(await work == [False], "a report counted although another relay had claimed its cursor")


async def redriven_twice(scene: Scene) -> None:
    """Of two people who redrive the same event one does, and one is told that it is not dead."""
    [run, _] = await _two_cursors(scene)
    claimed = await scene.bench.store.deliveries.claim(TENANT, [("shop", 2)], "w", LEASE)
    [mine] = [one for one in claimed if one.run_id == run]
    which: dict[str, Any] = {"tenant": TENANT, "run_id": run, "sink": "shop", "fence": mine.fence}
    dead = Report(sent=mine.sent, sent_number=mine.sent_number, is_dead=True, error="no", **which)
    await scene.bench.store.deliveries.report([dead])
    async with scene.rival.transaction():
        await scene.rival.execute(
            "update deliveries set dead_at = null, attempts = 0, ready_at = $2 where run_id = $1", run, BASE
        )
        work = asyncio.create_task(scene.bench.store.deliveries.redrive(_done("redriven", run)))
        require(await scene.waits(work), "a redrive did not wait for another one of the same event")
    require(await work is False, "an event was redriven twice")
    require(await scene.bench.store.deliveries.read_actions(TENANT, run) == [], "a refused redrive is on record")


Play = Callable[[Scene], Awaitable[None]]


# -- resources -------------------------------------------------------------------------------------------------------
async def resource_claim_waits(scene: Scene) -> None:
    """A claim counts resources only when no other transaction counts those of the tenant."""
    plan = await scene.bench.publish(NEEDY)
    for _ in range(2):
        await scene.bench.begin(plan)
    await scene.rival.execute("insert into quota_scopes (tenant, scope) values ($1, $2)", TENANT, RESOURCES_LOCK)
    async with scene.rival.transaction():
        held = "select from quota_scopes where tenant = $1 and scope = $2 for update"
        await scene.rival.execute(held, TENANT, RESOURCES_LOCK)
        work = asyncio.create_task(scene.bench.claim(2))
        require(await scene.waits(work), "a claim counts resources while another transaction counts them")
    require(len(await work) == 1, "two steps hold one resource")


SCENES: tuple[Play, ...] = (
    late_report,
    late_failure,
    late_look,
    late_renewal,
    clock_goes_on,
    claim_passes_over,
    deletion_passes_over,
    report_in_order,
    look_in_order,
    renewal_in_order,
    business_keys_in_order,
    idempotency_keys_in_order,
    change_of_people_waits,
    decision_waits_for_people,
    decisions_share_people,
    delivery_claim_passes_over,
    delivery_report_beside_an_event,
    delivery_taken_over,
    redriven_twice,
    resource_claim_waits,
)


def stage(play: Play, databases: PostgresDatabases) -> str | None:
    """Play one scene on an empty database; what went wrong, if anything did."""
    return asyncio.run(_stage(play, databases))


async def _stage(play: Play, databases: PostgresDatabases) -> str | None:
    await databases.empty()
    rival = await asyncpg.connect(databases.dsn)
    try:
        async with asyncio.timeout(3 * PATIENCE), opened(PostgresStore(databases.dsn)) as store:
            bench = still_bench(store)
            plan = await bench.publish(FLAT)
            for _ in range(2):
                await bench.begin(plan)
            await play(Scene(bench, rival, await bench.claim(2, lease=LEASE)))
    except Exception as problem:  # noqa: BLE001 - whatever goes wrong in a scene that always goes well is a finding
        return f"{play.__name__}: {str(problem) or type(problem).__name__}"
    finally:
        await rival.close(timeout=5)
    return None
