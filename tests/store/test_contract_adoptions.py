"""Adoptions: written with the run, one owner of an undo, and a run that a live one adopted from is not deleted."""

import pytest
from msgspec.structs import replace
from tests.store.test_contract_retention import ended
from tests.store.values import TENANT, a_run, details, finished, key, new_run, run_id, save, want, writes

from stepkeep.kernel.errors import StoreError
from stepkeep.kernel.machine.rows import rows_of
from stepkeep.store.change import Loaded, More, Write
from stepkeep.store.protocol import Store
from stepkeep.store.rows import AdoptionRow, ReleasedUndo


def adopted(number: int, source: int, step: str = "pay", no: int = 0, owned: int = 0) -> AdoptionRow:
    return AdoptionRow(
        tenant=TENANT, run_id=run_id(number), no=no, source_run=run_id(source), source_step=step, owned=owned
    )


async def rows(store: Store, *sources: int) -> list[AdoptionRow]:
    found = await store.read_adoptions(TENANT, [run_id(one) for one in sources])
    return sorted(found, key=lambda row: (row.run_id, row.no))


async def test_adoptions_are_read_by_the_run_that_they_come_from(store: Store) -> None:
    mine = (adopted(2, 1, "book", 0, 1), adopted(2, 1, "pay", 1))
    await save(store, ended(1), new_run(2, adoptions=mine), new_run(3, adoptions=(adopted(3, 1),)))
    assert await rows(store, 1) == [*mine, adopted(3, 1)]
    assert await rows(store, 2) == await store.read_adoptions("other", [run_id(1)]) == []
    assert await store.read_adoptions(TENANT, ["no id"]) == []
    seen: list[Loaded] = []

    def look(loaded: Loaded) -> More | Write:
        seen.append(loaded)
        return Write() if len(seen) > 1 else More(adoptions=(key(1), key(2)))

    await store.change([want(1)], look)
    found = seen[-1].adoptions
    assert sorted(found[key(1)], key=lambda row: (row.run_id, row.no)) == [*mine, adopted(3, 1)]
    assert found[key(2)] == ()


async def test_one_run_owns_the_undo_of_a_step_and_gives_it_to_the_next(store: Store) -> None:
    await save(store, ended(1), ended(2, adoptions=(adopted(2, 1, owned=1),)))
    with pytest.raises(StoreError):
        await save(store, new_run(3, adoptions=(adopted(3, 1, owned=1),)))
    assert await store.read_run(*key(3)) is None
    new = new_run(3, adoptions=(adopted(3, 1, owned=1),))
    await store.change([want(2)], writes(Write(new_runs=[new], rows=rows_of([ReleasedUndo(*key(2))]))))
    assert await rows(store, 1) == [adopted(2, 1), adopted(3, 1, owned=1)]


async def test_a_run_is_kept_while_a_live_run_refers_to_it(store: Store) -> None:
    await save(store, ended(1), ended(5), new_run(2, adoptions=(adopted(2, 1),)))
    assert await store.delete_runs(TENANT, [run_id(1), run_id(5)]) == [run_id(5)]
    change, entry = finished(a_run(2))
    change = replace(change, run=replace(change.run, open=0))
    await store.change([want(2)], writes(Write(runs=[change], entries=[entry])))
    assert await store.delete_runs(TENANT, [run_id(1)]) == [run_id(1)]
    assert await rows(store, 1) == [adopted(2, 1)]
    assert await store.delete_runs(TENANT, [run_id(2)]) == [run_id(2)]
    assert await rows(store, 1) == []


async def test_the_runs_that_repeat_a_run_are_found_newest_first(store: Store) -> None:
    again = [new_run(number, details=details(number, rerun_of=run_id(1))) for number in (2, 3, 4)]
    await save(store, ended(1), *again)
    assert await store.find_reruns(TENANT, run_id(1)) == [run_id(4), run_id(3), run_id(2)]
    assert await store.find_reruns(TENANT, run_id(1), limit=2) == [run_id(4), run_id(3)]
    assert await store.find_reruns("other", run_id(1)) == await store.find_reruns(TENANT, "no id") == []
