"""Sinks and delivery cursors in a differential life: what relays and people do to them, drawn from a seed of its own.

The same calls go to the model and to the real store, and every answer must be the same. The life itself moves the
cursors: its runs emit, end and are deleted, and its workers change their states. `differential` calls it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from random import Random
from typing import Any

from msgspec.structs import replace

from stepkeep.kernel.definition import SECOND
from stepkeep.kernel.errors import StepkeepError
from stepkeep.store.deliveries import WHOLE, Action, Report, Takes, worker_cursor
from stepkeep.store.protocol import Store
from stepkeep.store.rows import Delivery, SinkRow

KINDS = (
    ("all", Takes.EMITTED, ""),
    ("some", Takes.EMITTED, "told"),
    ("course", Takes.EMITTED | Takes.TRANSITIONS, ""),
    ("ends", Takes.ENDINGS, ""),
    ("watch", Takes.WORKERS, ""),
    ("both", Takes.WORKERS | Takes.DIALECT, ""),
)
"""Sinks by name: what they take, and the beginning of the types of their events."""

LEASE = 20 * SECOND
AT_ONCE = 8


class DeliveryChanges:
    """What is done to deliveries in one life. Claims are kept per tenant, as both stores gave them."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"deliveries:{seed}")  # noqa: S311 - chance that must come out the same again
        self.is_there = self._random.random() < 0.7
        self._kinds = self._random.sample(KINDS, self._random.randint(1, len(KINDS)))
        self._claims: dict[str, list[Delivery]] = {}

    async def begin(self, stores: Sequence[Store], tenant: str) -> Any:
        """Most lives have sinks from their beginning on."""
        if self.is_there:
            for name, takes, prefix in self._kinds:
                yield "a new sink", [await _save(store, tenant, name, takes, prefix) for store in stores]

    async def go_on(self, stores: Sequence[Store], tenant: str) -> Any:
        """A few calls, each with what both stores answered."""
        for _ in range(AT_ONCE if self.is_there else 0):
            act = self._random.choice((self._claim, self._claim, self._report, self._report, self._redrive, self._drop))
            if self._random.random() < 0.08:
                act = self._random.choice((self._replace, self._delete))
            if (found := await act(stores, tenant)) is not None:
                yield act.__name__.removeprefix("_"), found

    async def _claim(self, stores: Sequence[Store], tenant: str) -> list[Any] | None:
        sink = self._random.choice(self._kinds)[0]
        now = await stores[0].now()
        rows = await stores[0].deliveries.list_cursors(tenant, sink=sink, limit=1000)
        aside = {one.run_id for one in await stores[0].list_quarantined(tenant)}
        moments = [row.ready_at for row in rows if row.run_id not in aside]
        due = sorted(moment for moment in moments if moment is not None and moment <= now)
        # The order among cursors that are due since the same moment is open: take all of that moment, or none.
        most = 1000
        if due and self._random.random() < 0.5 and due.count(due[0]) < len(due):
            most = due.count(due[0])
        found = []
        for store in stores:
            claimed = await _said(store.deliveries.claim(tenant, [(sink, most)], "w", LEASE))
            is_list = isinstance(claimed, list)
            found.append(sorted(claimed, key=lambda one: one.run_id) if is_list else claimed)
        if isinstance(found[0], list):
            self._claims.setdefault(tenant, []).extend(found[0])
        return found

    async def _report(self, stores: Sequence[Store], tenant: str) -> list[Any] | None:
        claims = self._claims.get(tenant, [])
        if not claims:
            return None
        one = claims.pop(self._random.randrange(len(claims)))
        report = Report(
            tenant=one.tenant,
            run_id=one.run_id,
            sink=one.sink,
            fence=one.fence - (self._random.random() < 0.1),
            sent=one.sent,
            sent_number=one.sent_number,
            attempts=one.attempts,
        )
        match self._random.choice(("all", "all", "part", "failed", "dead", "longer")):
            case "all":
                report = replace(report, sent=one.last, sent_number=WHOLE, attempts=0)
            case "part":
                report = replace(report, sent=max(one.sent, one.last), sent_number=max(one.sent_number - WHOLE, 0))
                if (report.sent, report.sent_number) < (one.sent, one.sent_number):
                    report = replace(report, sent=one.sent, sent_number=one.sent_number)
            case "failed":
                report = replace(report, attempts=one.attempts + 1, retry_us=2 * SECOND, error="no")
            case "dead":
                report = replace(report, attempts=10, is_dead=True, error="never")
            case _:
                report = replace(report, lease_us=LEASE)
                claims.append(one)
        return [await _said(store.deliveries.report([report])) for store in stores]

    async def _redrive(self, stores: Sequence[Store], tenant: str) -> list[Any] | None:
        row = await self._dead(stores[0], tenant)
        if row is None:
            return None
        action = _action(row, "redriven", None, self._random)
        return [await _said(store.deliveries.redrive(action)) for store in stores]

    async def _drop(self, stores: Sequence[Store], tenant: str) -> list[Any] | None:
        row = await self._dead(stores[0], tenant)
        if row is None:
            return None
        place = self._random.choice(((row.sent + 1, 0), (row.last, 0), (row.last + 1, 0), (row.sent, row.sent_number)))
        action = _action(row, "dropped", place, self._random)
        return [await _said(store.deliveries.drop(action)) for store in stores]

    async def _dead(self, model: Store, tenant: str) -> Delivery | None:
        """More likely than not a cursor that is dead."""
        dead = await model.deliveries.list_cursors(tenant, dead=True, limit=1000)
        rows = dead if dead and self._random.random() < 0.8 else await model.deliveries.list_cursors(tenant, limit=1000)
        return self._random.choice(rows) if rows else None

    async def _delete(self, stores: Sequence[Store], tenant: str) -> list[Any] | None:
        """Runs with something left to deliver are kept; a run of which all else is delivered shows it best."""
        runs = sorted({row.run_id for row in await stores[0].deliveries.list_cursors(tenant, dead=True, limit=1000)})
        if not runs:
            return None
        return [sorted(await store.delete_runs(tenant, runs)) for store in stores]

    async def end(self, stores: Sequence[Store], tenant: str) -> Any:
        """Everything is delivered but for one sink, whose events are dead: no run with one of them is deleted."""
        dead = self._random.choice(self._kinds)[0]
        for name, *_ in self._kinds if self.is_there else ():
            claims = [await store.deliveries.claim(tenant, [(name, 1000)], "w", LEASE) for store in stores]
            yield f"the last claim of {name}", [sorted(one.run_id for one in claimed) for claimed in claims]
            for store, claimed in zip(stores, claims, strict=True):
                for one in claimed:
                    await store.deliveries.report([_last_report(one, is_dead=name == dead)])
        found = await self._delete(stores, tenant)
        if found is not None:
            yield "deletion of runs with dead events", found

    async def _replace(self, stores: Sequence[Store], tenant: str) -> list[Any] | None:
        name, takes, prefix = self._random.choice(self._kinds)
        if self._random.random() < 0.5:
            return [await _save(store, tenant, name, takes, prefix) for store in stores]
        discard = self._random.random() < 0.5
        action = Action(
            tenant=tenant, at=0, actor="ann", action="gone", sink=name, run_id=None, seq=None, number=None, reason="so"
        )
        return [await _said(store.deliveries.remove_sink(action, discard=discard)) for store in stores]


def _last_report(one: Delivery, *, is_dead: bool) -> Report:
    report = Report(
        tenant=one.tenant,
        run_id=one.run_id,
        sink=one.sink,
        fence=one.fence,
        sent=one.sent,
        sent_number=one.sent_number,
        attempts=10,
        is_dead=is_dead,
        error="never" if is_dead else None,
    )
    return report if is_dead else replace(report, sent=one.last, sent_number=WHOLE, attempts=0)


async def _save(store: Store, tenant: str, name: str, takes: Takes, prefix: str) -> Any:
    row = SinkRow(
        tenant=tenant,
        name=name,
        kind="host",
        takes=int(takes),
        prefix=prefix,
        patterns=(f"{prefix}*",),
        options=b"{}",
        created_at=await store.now(),
        created_by="ann",
    )
    action = Action(
        tenant=tenant, at=0, actor="ann", action="added", sink=name, run_id=None, seq=None, number=None, reason=""
    )
    return await _said(store.deliveries.save_sink(row, action))


async def _said(asked: Awaitable[Any]) -> Any:
    """The answer, or the refusal of the store: both are compared."""
    try:
        return await asked
    except StepkeepError as problem:
        return problem


def _action(row: Delivery, what: str, place: tuple[int, int] | None, random: Random) -> Action:
    seq, number = place or (None, None)
    actor = random.choice(("ann", "bea"))
    return Action(
        tenant=row.tenant,
        at=0,
        actor=actor,
        action=what,
        sink=row.sink,
        run_id=row.run_id,
        seq=seq,
        number=number,
        reason="why",
    )


async def read_deliveries(store: Store, tenant: str, runs: Sequence[str]) -> dict[str, Any]:
    """Everything that can be read of deliveries."""
    deliveries = store.deliveries
    workers = [worker.id for worker in await store.list_workers(tenant)]
    seen: dict[str, Any] = {
        "sinks": await deliveries.list_sinks(tenant),
        "due sinks": sorted(await deliveries.find_due_sinks(tenant)),
        "open cursors": await deliveries.list_cursors(tenant, limit=1000),
        "a page of cursors": await deliveries.list_cursors(tenant, after=("course", ""), limit=2),
        "dead cursors": await deliveries.list_cursors(tenant, dead=True, limit=1000),
        "dead cursors of one": await deliveries.list_cursors(tenant, sink="course", dead=True, limit=1000),
        "lags": await deliveries.count_cursors(tenant),
        "actions": await deliveries.read_actions(tenant, limit=1000),
    }
    for run in runs:
        seen[f"cursors of {run}"] = await deliveries.read_cursors(tenant, run)
        seen[f"actions of {run}"] = await deliveries.read_actions(tenant, run)
        seen[f"events of {run}"] = await deliveries.read_entries(tenant, run, (2, 0), 5)
    for worker in workers:
        seen[f"cursors of {worker}"] = await deliveries.read_cursors(tenant, worker_cursor(worker))
        seen[f"entries of {worker}"] = await deliveries.read_worker_entries(tenant, worker, 1, 2)
    return seen
