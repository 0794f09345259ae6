"""What every store promises about streams: fenced, ordered, bounded, read by runs and places, gone with their run."""

from __future__ import annotations

from typing import Any

import pytest
from tests.store.test_contract_retention import ended
from tests.store.values import SECOND, TENANT, WORKER, new_run, run_id, running, save

from stepkeep.kernel.errors import StepkeepError
from stepkeep.kernel.machine.rows import StreamPart, rows_of
from stepkeep.store.change import Write
from stepkeep.store.protocol import Store
from stepkeep.store.streams import Holder, StreamSize, WrittenPart

MOST = 1_000


def a_part(number: int, name: str = "tokens", start: int = 0, count: int = 1, **given: Any) -> StreamPart:
    plain = {"no": 0, "fence": 1, "at": 5, "body": b'["a"]'}
    row = {"tenant": TENANT, "run_id": run_id(number), "name": name, "start": start, "count": count}
    return StreamPart(**{**plain, **row, **given})


def holder(number: int, no: int = 0, fence: int = 1, worker: int = WORKER) -> Holder:
    return Holder(TENANT, run_id(number), no, fence, worker)


async def begin(store: Store, number: int = 1, **given: Any) -> None:
    due_at = await store.now() + 60 * SECOND
    await save(store, new_run(number, [running(number, due_at=due_at, **given), running(number, 1, due_at=due_at)]))


async def test_rows_have_one_order_per_run_and_are_read_after_each_of_them(store: Store) -> None:
    await begin(store)
    await begin(store, 2)
    assert await store.streams.append(holder(1), [a_part(1), a_part(1, "log", count=2, body=b'["a","b"]')], MOST)
    assert await store.streams.append(holder(1, 1), [a_part(1, no=1)], MOST)
    assert await store.streams.append(holder(2), [a_part(2)], MOST)
    assert await store.streams.append(holder(1), [a_part(1, start=1)], MOST)
    rows = await store.streams.read(TENANT, run_id(1))
    assert [(one.seq, one.no, one.name, one.start, one.count, one.total) for one in rows] == [
        (1, 0, "tokens", 0, 1, 5),
        (2, 0, "log", 0, 2, 14),
        (3, 1, "tokens", 0, 1, 19),
        (4, 0, "tokens", 1, 1, 24),
    ]
    assert rows[1].body == '["a","b"]'
    assert rows[0].at <= await store.now()
    assert await store.streams.read(TENANT, run_id(1), 1, 2) == rows[1:3]
    others = await store.streams.read(TENANT, run_id(2))
    assert await store.streams.read_new(TENANT, {run_id(2): 0, run_id(1): 2}, 10) == rows[2:] + others
    assert await store.streams.read_new(TENANT, {run_id(1): 1}, 1) == rows[1:2]
    assert await store.streams.read_new(TENANT, {"no run": 0}, 10) == []
    assert await store.streams.read("other", run_id(1)) == []
    assert await store.streams.read_new("other", {run_id(1): 0}, 10) == []
    assert await store.streams.measure(TENANT, run_id(1)) == 24
    assert await store.streams.measure(TENANT, run_id(3)) == await store.streams.measure(TENANT, "no run") == 0
    assert await store.measure_use(TENANT, "streams", 10) == (5, 29)


@pytest.mark.parametrize("wrong", [{"no": 1}, {"fence": 2}, {"worker": WORKER + 1}, {"number": 2}])
async def test_only_the_attempt_that_holds_the_step_writes(store: Store, wrong: dict[str, Any]) -> None:
    await begin(store, fence=3)
    given = {"number": 1, "fence": 3, **wrong}
    assert not await store.streams.append(holder(**given), [a_part(1, fence=3)], MOST)
    assert await store.streams.read(TENANT, run_id(1)) == []


async def test_an_attempt_whose_lease_has_run_out_or_whose_run_is_set_aside_writes_nothing(store: Store) -> None:
    await save(store, new_run(1, [running(1, due_at=await store.now() - 1)]))
    assert not await store.streams.append(holder(1), [a_part(1)], MOST)
    await begin(store, 2)
    await store.quarantine(TENANT, run_id(2), "ann", "odd")
    assert not await store.streams.append(holder(2), [a_part(2)], MOST)
    assert not await store.streams.append(Holder(TENANT, "no run", 0, 1, WORKER), [a_part(2)], MOST)


async def test_the_streams_of_a_run_have_no_more_bytes_than_they_may(store: Store) -> None:
    await begin(store)
    assert await store.streams.append(holder(1), [a_part(1)], 9)
    assert not await store.streams.append(holder(1), [a_part(1, start=1)], 9)
    assert await store.streams.append(holder(1), [a_part(1, start=1)], 10)


async def test_a_place_is_never_used_twice(store: Store) -> None:
    await begin(store)
    assert await store.streams.append(holder(1), [a_part(1)], MOST)
    with pytest.raises(StepkeepError):
        await store.streams.append(holder(1), [a_part(1, "log"), a_part(1)], MOST)
    with pytest.raises(StepkeepError):
        await store.change([], lambda loaded: Write(rows=rows_of([a_part(1)])))
    assert [one.name for one in await store.streams.read(TENANT, run_id(1))] == ["tokens"], "all parts or none"


async def test_the_parts_of_reports_follow_those_that_were_written_before(store: Store) -> None:
    await begin(store)
    await begin(store, 2)
    assert await store.streams.append(holder(1), [a_part(1)], MOST)
    parts = [a_part(1, start=1), a_part(2), a_part(1, fence=2, after=(1, 0))]
    await store.change([], lambda loaded: Write(rows=rows_of(parts)))
    rows = await store.streams.read(TENANT, run_id(1))
    assert [(one.seq, one.fence, one.start, one.total) for one in rows] == [(1, 1, 0, 5), (2, 1, 1, 10), (3, 2, 0, 15)]
    assert [(one.after_fence, one.after_place, one.at) for one in rows[1:]] == [(None, None, 5), (1, 0, 5)]
    assert len(await store.streams.read(TENANT, run_id(2))) == 1


async def test_what_was_written_is_found_by_attempt(store: Store) -> None:
    await begin(store)
    parts = [a_part(1, count=2, body=b'["a","b"]'), a_part(1, start=2), a_part(1, fence=2, after=(1, 1))]
    await store.change([], lambda loaded: Write(rows=rows_of(parts)))
    assert await store.streams.list_sizes(TENANT, run_id(1)) == [
        StreamSize(0, "tokens", 1, 3, 14, 1, 2, None, None),
        StreamSize(0, "tokens", 2, 1, 5, 3, 3, 1, 1),
    ]
    assert await store.streams.read_attempt(TENANT, run_id(1), 0, 1) == [
        WrittenPart("tokens", 0, 2, b'["a","b"]'),
        WrittenPart("tokens", 2, 1, b'["a"]'),
    ]
    for none in ("no run", run_id(9)):
        assert await store.streams.list_sizes(TENANT, none) == []
        assert await store.streams.read_attempt(TENANT, none, 0, 1) == []


async def test_streams_go_with_their_run(store: Store) -> None:
    await save(store, ended(1), ended(2))
    await store.change([], lambda loaded: Write(rows=rows_of([a_part(1), a_part(2)])))
    assert await store.delete_runs(TENANT, [run_id(1)]) == [run_id(1)]
    assert await store.streams.read(TENANT, run_id(1)) == []
    assert len(await store.streams.read(TENANT, run_id(2))) == 1
