"""What every store promises about limits: keys, places, parked steps, and the lines that are looked at."""

from __future__ import annotations

from typing import Any

import pytest
from tests.store.test_contract_retention import ended
from tests.store.values import TENANT, a_run, new_run, ready, run_id, running, save, want

from stepkeep.kernel.errors import StepkeepError
from stepkeep.store.change import LimitChange, Loaded, More, Write
from stepkeep.store.limits import KeyInUse, LimitUse
from stepkeep.store.protocol import Store
from stepkeep.store.rows import LimitHold, LimitKeyRow, LimitLine, LimitWait, ResourceWaiter

ASIDE = 100_000_000_000_000_000
PARKED = 2 * ASIDE
QUEUE = ready(1).queue
API = (TENANT, "api", "acme")
OTHER = (TENANT, "api", "beta")
GPU = (TENANT, "gpu", "")
LINE = LimitLine(*API, QUEUE)


def a_key(seq: int, held: int, limit_key: tuple[str, str, str] = API, tat: int = 0) -> LimitKeyRow:
    tenant, name, key = limit_key
    return LimitKeyRow(tenant=tenant, name=name, key=key, seq=seq, held=held, tat=tat)


def a_hold(number: int, seq: int, limit_key: tuple[str, str, str] = API, **given: Any) -> LimitHold:
    _, name, key = limit_key
    plain: dict[str, Any] = {"no": 0, "fence": 1, "weight": 1, "step": "s0", "held_at": 5}
    return LimitHold(tenant=TENANT, run_id=run_id(number), name=name, key=key, seq=seq, **{**plain, **given})


def a_wait(number: int, no: int = 0, limit_key: tuple[str, str, str] = API, **given: Any) -> LimitWait:
    _, name, key = limit_key
    plain: dict[str, Any] = {"queue": QUEUE, "priority": 0, "asked_at": number}
    return LimitWait(tenant=TENANT, run_id=run_id(number), no=no, name=name, key=key, **{**plain, **given})


async def lock(store: Store, *keys: tuple[str, str, str], change: LimitChange | None = None) -> Loaded:
    """Lock keys and write a change; returns what was loaded under the locks."""
    seen: list[Loaded] = []

    def decide(loaded: Loaded) -> More | Write:
        if not loaded.limits and keys:
            return More(limits=keys)
        seen.append(loaded)
        return Write(limits=change or LimitChange())

    await store.change([want(1)], decide)
    return seen[0]


async def hold(store: Store, *holds: LimitHold) -> None:
    """Write places, and their keys as they stand with them."""
    keys = {(one.tenant, one.name, one.key): one for one in holds}
    rows = [
        a_key(one.seq, sum(each.weight for each in holds if (each.name, each.key) == place[1:]), place)
        for place, one in keys.items()
    ]
    await lock(store, *keys, change=LimitChange(keys=rows, holds=list(holds)))


async def park(store: Store, *waits: LimitWait, due_at: int | None = None) -> None:
    lines = dict.fromkeys([LimitLine(one.tenant, one.name, one.key, one.queue, due_at) for one in waits])
    keys = dict.fromkeys([line.limit_key for line in lines])
    await lock(store, *keys, change=LimitChange(parked=list(waits), begun=list(lines)))


async def of_key(store: Store, place: tuple[str, str, str] = API) -> tuple[int, int, tuple[int, ...]]:
    row = (await lock(store, place)).limits[place]
    return row.seq, row.held, row.freed


async def test_a_new_key_is_numbered_from_now_on_and_an_old_one_as_it_was(store: Store) -> None:
    await save(store, new_run(1, [running(1, due_at=90)]))
    first = await lock(store, API)
    row = first.limits[API]
    assert (row.seq, row.held, row.tat, row.freed, row.used_at) == (first.now, 0, 0, (), first.now)
    await hold(store, a_hold(1, 7, weight=2))
    assert await of_key(store) == (7, 2, ())
    assert (await lock(store, OTHER)).limits.keys() == {OTHER}


async def test_the_end_of_a_claim_frees_its_places_and_no_others(store: Store) -> None:
    await save(store, new_run(1, [running(1, due_at=90), running(1, 1, due_at=90)]))
    await hold(store, a_hold(1, 3, weight=2), a_hold(1, 4, no=1, fence=6), a_hold(1, 5, GPU))
    await lock(store, change=LimitChange(at=70, ended=[(TENANT, run_id(1), 1, 5), ("other", run_id(1), 0, 1)]))
    assert [one.seq for one in await store.limits.read_holds(TENANT, "api", "acme", 9)] == [3, 4]
    await lock(store, change=LimitChange(at=70, ended=[(TENANT, run_id(1), 0, 1)]))
    assert await of_key(store) == (4, 1, (3,))
    assert await of_key(store, GPU) == (5, 0, (5,))
    await lock(store, change=LimitChange(at=70, ended=[(TENANT, run_id(1), 1, 6)]))
    assert await of_key(store) == (4, 0, (3, 4))
    await lock(store, API, change=LimitChange(keys=[a_key(8, 0)]))
    assert await of_key(store) == (8, 0, ()), "a grant has told what was free before it"
    assert await store.limits.read_holds(TENANT, "api", "acme", 9) == []


async def test_less_than_nothing_is_never_held(store: Store) -> None:
    await save(store, new_run(1, [running(1, due_at=90)]))
    await hold(store, a_hold(1, 3, weight=2))
    await lock(store, API, change=LimitChange(keys=[a_key(3, 1)]))
    with pytest.raises(StepkeepError):
        await lock(store, change=LimitChange(at=70, ended=[(TENANT, run_id(1), 0, 1)]))
    assert await of_key(store) == (3, 1, ())


async def test_parked_steps_stand_in_line_by_priority_and_arrival(store: Store) -> None:
    await save(store, *(new_run(one, [ready(one, at=ASIDE + one), ready(one, 1, at=7)]) for one in (1, 2, 3, 4)))
    await park(store, a_wait(1), a_wait(3, priority=4), a_wait(2), a_wait(4, queue=9), a_wait(1, 1, OTHER))
    found = await store.limits.find_parked(LINE, 9)
    assert found[0] == ResourceWaiter(TENANT, run_id(3), 0, a_run(3).definition_id, LINE)
    assert [one.run_id for one in found] == [run_id(one) for one in (3, 1, 2)]
    assert await store.limits.find_parked(LINE, 1) == found[:1]
    assert await store.limits.find_parked(LimitLine("other", "api", "acme", QUEUE), 9) == []
    assert [one.run_id for one in await store.limits.find_parked(LimitLine(*API, 9), 9)] == [run_id(4)]
    steps = (await store.read_steps(TENANT, run_id(1)))[:2]
    assert [step.ready_at for step in steps] == [PARKED + 1, 7], "a step that is not set aside keeps its time"
    assert await store.limits.read_waits(TENANT, run_id(1)) == [a_wait(1), a_wait(1, 1, OTHER)]
    assert await store.limits.read_waits("other", run_id(1)) == []
    assert (await lock(store, API)).lines == {(API, QUEUE), (API, 9)}
    await store.quarantine(TENANT, run_id(3), "ann", "odd")
    assert await store.limits.find_parked(LINE, 9) == found[1:]


async def test_a_step_that_is_parked_again_stands_in_another_line(store: Store) -> None:
    await save(store, new_run(1, [ready(1, at=ASIDE + 1)]))
    await park(store, a_wait(1))
    await park(store, a_wait(1, limit_key=OTHER, asked_at=9))
    assert await store.limits.find_parked(LINE, 9) == []
    assert await store.limits.read_waits(TENANT, run_id(1)) == [a_wait(1, limit_key=OTHER, asked_at=9)]
    assert (await store.read_steps(TENANT, run_id(1)))[0].ready_at == PARKED + 1
    await lock(store, change=LimitChange(left=[(TENANT, run_id(1), 0), ("other", run_id(1), 0)]))
    assert await store.limits.read_waits(TENANT, run_id(1)) == []


async def test_a_line_is_due_when_it_is_said_and_when_a_place_under_its_key_is_free(store: Store) -> None:
    await save(store, *(new_run(one, [running(one, due_at=90), ready(one, 1, at=ASIDE + 1)]) for one in (1, 2)))
    await hold(store, a_hold(1, 3), a_hold(2, 4, OTHER))
    now = await store.now()
    await park(store, a_wait(1, 1), due_at=now + 60_000_000)
    await park(store, a_wait(2, 1, OTHER, queue=9), due_at=None)
    assert not await store.limits.has_due()
    assert await store.limits.find_due([QUEUE, 9], 9) == []
    await lock(store, change=LimitChange(at=now - 5, ended=[(TENANT, run_id(1), 0, 1)]))
    [due] = await store.limits.find_due([QUEUE, 9], 9)
    assert (due.line, due.key.held, due.key.freed) == (LINE._replace(due_at=now - 5), 0, (3,))
    assert await store.limits.find_due([9], 9) == []
    await store.limits.wake(TENANT, "mail", 0)
    await store.limits.wake("other", "api", 0)
    assert await store.limits.find_due([9], 9) == []
    await store.limits.wake(TENANT, "api", 0)
    assert [one.line.limit_key for one in await store.limits.find_due([QUEUE, 9], 9)] == [API, OTHER]
    assert len(await store.limits.find_due([QUEUE, 9], 1)) == 1
    assert (await store.limits.find_due([QUEUE], 9))[0].line.due_at == now - 5, "it was due before"
    await park(store, a_wait(2, 1, OTHER, queue=9), due_at=now + 60_000_000)
    assert await store.limits.find_due([9], 9) != [], "a line that there is keeps its time"
    await lock(store, change=LimitChange(lines=[LimitLine(*OTHER, 9), LINE]))
    assert not await store.limits.has_due()


async def test_a_line_goes_when_nothing_is_left_in_it(store: Store) -> None:
    await save(store, new_run(1, [ready(1, at=ASIDE + 1)]))
    await park(store, a_wait(1), due_at=1)
    await lock(store, change=LimitChange(searched=[LINE]))
    assert await store.limits.has_due()
    await lock(store, change=LimitChange(left=[(TENANT, run_id(1), 0)], searched=[LINE]))
    assert not await store.limits.has_due()
    assert (await lock(store, API)).lines == set()


async def test_use_is_counted_by_limit_and_by_key(store: Store) -> None:
    await save(store, *(new_run(one, [running(one, due_at=90), ready(one, 1, at=ASIDE + 1)]) for one in (1, 2)))
    await hold(store, a_hold(1, 3, weight=2), a_hold(2, 4, OTHER), a_hold(2, 5, GPU))
    await park(store, a_wait(1, 1), a_wait(2, 1, (TENANT, "mail", "")))
    assert await store.limits.count_use(TENANT) == [
        LimitUse("api", 3, 2, 1),
        LimitUse("gpu", 1, 1, 0),
        LimitUse("mail", 0, 0, 1),
    ]
    assert await store.limits.count_use("other") == []
    assert await store.limits.read_keys(TENANT, "api", "", 9) == [
        KeyInUse("api", "acme", 2, 0, 1),
        KeyInUse("api", "beta", 1, 0, 0),
    ]
    assert [one.key for one in await store.limits.read_keys(TENANT, "api", "", 1)] == ["acme"]
    assert [one.key for one in await store.limits.read_keys(TENANT, "api", "acme", 9)] == ["beta"]
    assert await store.limits.read_keys("other", "api", "", 9) == []
    assert await store.limits.read_holds(TENANT, "api", "acme", 9) == [a_hold(1, 3, weight=2)]
    assert await store.limits.read_holds("other", "api", "acme", 9) == []


async def test_only_keys_without_use_are_forgotten(store: Store) -> None:
    await save(store, new_run(1, [running(1, due_at=90), ready(1, 1, at=ASIDE + 1)]))
    later = await store.now() + 60_000_000
    charged, waited, free = ((TENANT, name, "") for name in ("charged", "waited", "free"))
    await hold(store, a_hold(1, 3))
    await park(store, a_wait(1, 1, waited))
    await lock(store, charged, free, change=LimitChange(keys=[a_key(1, 0, charged, tat=later)]))
    assert await store.limits.forget_keys(60_000_000, 9) == 0
    assert await store.limits.forget_keys(-60_000_000, 9) == 1
    assert (await lock(store, free)).limits[free].seq > 3
    assert (await lock(store, charged)).limits[charged].tat == later
    assert await of_key(store) == (3, 1, ())


async def test_places_and_waits_go_with_their_run(store: Store) -> None:
    await save(store, ended(1))
    await hold(store, a_hold(1, 3))
    await park(store, a_wait(1, 0, OTHER))
    assert await store.delete_runs(TENANT, [run_id(1)])
    assert await store.limits.read_holds(TENANT, "api", "acme", 9) == []
    assert await store.limits.find_parked(LimitLine(*OTHER, QUEUE), 9) == []
