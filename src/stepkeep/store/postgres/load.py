"""Locks and loads inside an open transaction: runs in id order, then proposals, then the other rows.

Steps are read by a statement of their own, after every lock is held: a statement that locks and reads at once would
read steps as they were before it waited. Nothing is written here. `change` calls it, possibly several times.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from stepkeep.kernel.decide.decision import Involved, involved_in
from stepkeep.kernel.errors import Broken
from stepkeep.kernel.machine.rows import Run, Step
from stepkeep.store import columns, loading
from stepkeep.store.change import Loaded, More, Propose, RunKey, Want
from stepkeep.store.postgres.arrays import ids, names, numbers
from stepkeep.store.postgres.connections import Connection, fetch
from stepkeep.store.postgres.people import load_authorities, share_people
from stepkeep.store.reading import quarantined, unreadable
from stepkeep.store.rows import KeyWant, Mailbox
from stepkeep.store.statements import load_statements

SQL = load_statements("stepkeep.store.postgres")

T = TypeVar("T")

ALWAYS = -(2**63)

QUARANTINED = columns.RUN_WIDTH
"""The index in a row of `lock_runs` that tells if the run is quarantined. Before it are the clock, the number asked for
and the columns of a run without its key."""

SHARED_RUN = 4 + columns.STEP_WIDTH - 3
"""The index in a row of `find_claimable` from which on the columns of the run follow those of its step."""

run_from = columns.reader(Run, "tenant", "id")
step_from = columns.reader(Step, "tenant", "run_id", "no")

is_run_id = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch
"""Run ids are compared as text outside the database and as numbers inside, so only one spelling of each is accepted."""


def involved_from(
    keys: Sequence[RunKey], asked: Iterable[Sequence[Any]], executed: Iterable[Sequence[Any]]
) -> dict[RunKey, Involved]:
    """The people behind runs, from the rows of `load_requesters` and `load_executors`."""
    return involved_in(
        keys,
        [(keys[place - 1], person, before) for place, person, before in asked],
        [(keys[place - 1], no, owner) for place, no, owner in executed],
    )


def zip_of(keys: Sequence[Any]) -> tuple[Any, ...]:
    """The columns of keys, as parameters."""
    return tuple(zip(*keys, strict=True))


def of_runs(keys: Sequence[Any]) -> tuple[Any, ...]:
    """The same for keys that begin with a run: tenants, run ids, and perhaps texts."""
    tenants, run_ids, *rest = zip(*keys, strict=True)
    return (names(tenants), ids(run_ids), *rest)


def of_steps(keys: Sequence[Any]) -> tuple[Any, ...]:
    tenants, run_ids, nos = zip(*keys, strict=True)
    return (names(tenants), ids(run_ids), numbers(nos))


def of_names(keys: Sequence[Any]) -> tuple[Any, ...]:
    return (*of_steps([key[:3] for key in keys]), [key[3] for key in keys])


PLACED = {
    *("load_inbox", "load_seen_messages", "load_outputs", "load_inputs", "load_costs", "load_above"),
    *("load_requesters", "load_executors", "load_checkpoints"),
}
"""The statements whose rows begin with the place of the key that was asked for, from 1."""

PARAMETERS: dict[str, Callable[[Sequence[Any]], tuple[Any, ...]]] = {
    **dict.fromkeys((*PLACED, "load_adoptions"), of_runs),
    "load_outputs": of_steps,
    "load_checkpoints": of_names,
    "load_definitions": lambda keys: (numbers(keys),),
    "load_policies": lambda keys: (keys,),
    "load_revisions": lambda keys: ([one[0] for one in keys], numbers([one[1] for one in keys])),
}
"""How the keys of a statement become parameters, where these are not just columns of text."""


async def drive(connection: Connection, loads: loading.Loads[T]) -> T:
    """Send each statement that a generator asks for, and give it the rows."""
    try:
        ask = next(loads)
        while True:
            given = PARAMETERS.get(ask.statement, zip_of)(ask.keys) if ask.given is None else ask.given
            found = await fetch(connection, getattr(SQL, ask.statement), *given)
            if ask.statement in PLACED:
                found = [(*ask.keys[row[0] - 1], *row[1:]) for row in found]
            ask = loads.send(found)
    except StopIteration as ended:
        result: T = ended.value
        return result


class OutOfOrder(Exception):
    """A run is needed that comes before a lock already held: one with a smaller id, or any after business keys were
    locked. Waiting for it here could be a deadlock."""


def lock_order(key: RunKey) -> tuple[str, str]:
    return (key[1], key[0])


class Loading:
    """What one transaction has locked and loaded so far."""

    def __init__(self, connection: Connection, clock_offset: int) -> None:
        self.connection, self.clock_offset = connection, clock_offset
        self.loaded = Loaded(now=0)
        self._looked: set[RunKey] = set()
        self._last: tuple[str, str] = ("", "")
        self._holds_keys = False

    async def begin(self, wants: Sequence[Want], propose: Propose | None) -> None:
        """Lock and load what is needed from the start."""
        if wants or propose is None:
            await self._lock({want.key for want in wants})
        shares = [] if propose is None else await self._lock_shares(propose)
        await self._load(wants)
        if propose is not None and shares:
            await self._load_claimable(shares, propose)

    async def more(self, more: More) -> None:
        """Load what the decision still needs; raises OutOfOrder if that is not possible in this transaction."""
        if more.wants:
            await self._lock({want.key for want in more.wants} - self._looked)
            await self._load(more.wants)
        loaded = self.loaded
        await self._drive(loading.more_rows(more, loaded))
        if more.keys:
            await self._load_mailboxes(more.keys)
        self._holds_keys |= bool(more.slots or more.resources or more.limits)
        await self._drive(loading.locked_tenants(more, loaded))

    async def _drive(self, loads: loading.Loads[T]) -> T:
        return await drive(self.connection, loads)

    async def _load_mailboxes(self, wants: Sequence[KeyWant]) -> None:
        """Lock business keys and then read what is known about them, so that nothing changes after it was read."""
        if self._holds_keys:
            raise Broken("a change asked for business keys twice")
        self._holds_keys = True
        keys = tuple(zip(*(want.business_key for want in wants), strict=True))
        locked = await fetch(self.connection, SQL.lock_business_keys, *keys, self.clock_offset)
        self.loaded.now = locked[-1][1]
        found = self.loaded.mailboxes
        found.update({want.business_key: Mailbox(known={}) for want in wants})
        for tenant, key, run_id in await fetch(self.connection, SQL.load_business_keys, *keys):
            found[tenant, key].holder = run_id
        for tenant, key, count, size_bytes, last in await fetch(self.connection, SQL.measure_mailboxes, *keys):
            mailbox = found[tenant, key]
            mailbox.count, mailbox.size_bytes, mailbox.last_number = count, int(size_bytes), last
        if ids := [(*want.business_key, one) for want in wants for one in want.ids]:
            for row in await fetch(self.connection, SQL.load_mailbox_messages, *zip(*ids, strict=True)):
                found[row[0], row[1]].known[row[2]] = columns.mailbox_from(row)
        kept = [want.business_key for want in wants if want.kept and found[want.business_key].count]
        if kept:
            for row in await fetch(self.connection, SQL.load_kept_messages, *zip(*kept, strict=True)):
                found[row[0], row[1]].kept += (columns.mailbox_from(row),)

    async def _lock(self, keys: set[RunKey]) -> None:
        self._looked |= keys
        ordered = sorted((key for key in keys if is_run_id(key[1])), key=lock_order)
        if ordered:
            if self._holds_keys or lock_order(ordered[0]) < self._last:
                raise OutOfOrder
            self._last = lock_order(ordered[-1])
        loaded = self.loaded
        tenants, run_ids = [key[0] for key in ordered], [key[1] for key in ordered]
        for row in await fetch(self.connection, SQL.lock_runs, names(tenants), ids(run_ids), self.clock_offset):
            place = row[1]
            if place is not None and row[QUARANTINED]:
                key = ordered[place - 1]
                loaded.barred[key] = quarantined(key[1])
            elif place is not None:
                self._keep_run(ordered[place - 1], row[2:QUARANTINED])
            loaded.now = row[0]

    async def _lock_shares(self, propose: Propose) -> list[RunKey]:
        """Lock the runs of claimable steps that no other transaction holds; a run is listed once for each share."""
        if propose.run is not None:
            await self._lock({propose.run})
            return [propose.run] * propose.limit if propose.run in self.loaded.runs else []
        found = await fetch(
            self.connection,
            SQL.propose_steps,
            numbers(tuple(dict.fromkeys(propose.queues))),
            propose.limit,
            propose.limit * 2,
            ALWAYS if propose.after is None else propose.after,
            self.clock_offset,
        )
        shares = []
        runs = self.loaded.runs
        for row in found:
            self.loaded.now, tenant, run_id = row[:3]
            if tenant is None:
                continue
            key = (tenant, run_id)
            if key not in runs and key not in self.loaded.barred:
                self._keep_run(key, row[3:])
                self._looked.add(key)
                self._last = max(self._last, lock_order(key))
            shares.append(key)
        return shares

    async def _load_claimable(self, shares: list[RunKey], propose: Propose) -> None:
        """Read the steps to propose, now that no other transaction can claim them."""
        sizes = loading.sizes(shares, self.loaded.barred)
        ordered, lowest = list(sizes), {key: list[int]() for key in sizes}
        if ordered:
            tenants, run_ids = zip(*ordered, strict=True)
            asked = (numbers(list(sizes.values())), self.loaded.now, numbers(propose.queues))
            for row in await fetch(self.connection, SQL.load_claimable, names(tenants), ids(run_ids), *asked):
                key, no = ordered[row[0] - 1], row[1]
                lowest[key].append(no)
                self._keep_step(key, no, row[2:])
        loading.fill(shares, lowest, self.loaded)

    def _keep_run(self, key: RunKey, row: Sequence[Any]) -> None:
        try:
            self.loaded.runs[key] = run_from(key[0], key[1], row)
        except Exception as problem:  # noqa: BLE001 - it is this run's alone
            loading.bar(self.loaded, "runs", key, problem)
        else:
            self.loaded.steps[key] = {}

    def _keep_step(self, key: RunKey, no: int, row: Sequence[Any]) -> None:
        try:
            self.loaded.steps[key][no] = step_from(key[0], key[1], no, row)
        except Exception as problem:  # noqa: BLE001 - it is this run's alone
            loading.bar(self.loaded, "steps", (*key, no), problem)

    async def _load(self, wants: Sequence[Want]) -> None:
        loaded = self.loaded
        there = [want for want in wants if want.key in loaded.runs]
        whole = {want.key for want in there if want.whole} - loaded.whole
        if whole:
            await self._load_runs_steps(SQL.load_all_steps, whole)
            loaded.whole |= whole
        waiting = {want.key for want in there if want.waiting}
        if some := waiting - loaded.waiting - loaded.whole:
            await self._load_runs_steps(SQL.load_waiting_steps, some)
        loaded.waiting |= waiting
        await self._load_steps([(want.tenant, want.run_id, no) for want in there for no in want.steps])
        await self._drive(loading.wanted_rows(there, loaded))
        if callers := [one for want in wants for one in want.people if one not in loaded.authorities]:
            loaded.now = await share_people(self.connection, callers, self.clock_offset)
            loaded.authorities.update(await load_authorities(self.connection, callers))
        if duties := [key for key in loading.keys_of(there, "duties") if key not in loaded.involved]:
            loaded.involved.update(await self._drive(loading.people_behind(duties)))

    async def _load_steps(self, wanted: Sequence[tuple[str, str, int]]) -> None:
        steps = self.loaded.steps
        missing = [
            (tenant, run_id, no) for tenant, run_id, no in dict.fromkeys(wanted) if no not in steps[tenant, run_id]
        ]
        if not missing:
            return
        tenants, run_ids, nos = zip(*missing, strict=True)
        for row in await fetch(self.connection, SQL.load_steps, names(tenants), ids(run_ids), numbers(nos)):
            tenant, run_id, no = missing[row[0] - 1]
            self._keep_step((tenant, run_id), no, row[1:])

    async def _load_runs_steps(self, statement: str, keys: Iterable[RunKey]) -> None:
        ordered = list(keys)
        for row in await fetch(self.connection, statement, *of_runs(ordered)):
            self._keep_step(ordered[row[0] - 1], row[1], row[2:])


async def load_outputs(
    connection: Connection, wanted: Sequence[tuple[str, str, int]]
) -> list[tuple[int, str | None, bytes | None]]:
    """(index in `wanted` from 1, note, attempt's output) of the steps that exist."""
    tenants, run_ids, nos = zip(*wanted, strict=True)
    return await fetch(connection, SQL.load_outputs, names(tenants), ids(run_ids), numbers(nos))


def claimable_from(found: Iterable[Sequence[Any]]) -> Loaded:
    """Steps and their runs, as `find_claimable` selects them."""
    loaded = Loaded(now=0)
    for row in found:
        loaded.now, tenant, run_id, no = row[:4]
        key = (tenant, run_id)
        table = "runs"
        try:
            if key not in loaded.runs:
                loaded.runs[key], loaded.steps[key] = run_from(tenant, run_id, row[SHARED_RUN:]), {}
            table = "steps"
            loaded.steps[key][no] = step_from(tenant, run_id, no, row[4:SHARED_RUN])
        except Exception as problem:  # noqa: BLE001 - it is this run's alone
            loaded.barred.setdefault(key, unreadable(table, key, (*key, no), problem))
        loaded.proposed.append((tenant, run_id, no))
    if loaded.barred:
        readable = [one for one in loaded.proposed if (one[0], one[1]) not in loaded.barred]
        loaded.passed_over = len(loaded.proposed) - len(readable)
        loaded.proposed = readable
    return loaded
