"""The journal of a tenant in the order of commits: followed from a position, nothing is missed, nothing is foreign."""

import pytest
from msgspec.structs import replace
from tests.store.test_contract_record import other_tenants
from tests.store.values import TENANT, a_run, moved, new_run, run_id, save, want, writes

from stepkeep.kernel.errors import InvalidInput
from stepkeep.store.change import Write
from stepkeep.store.protocol import Store


async def followed(store: Store, after: str, limit: int = 1000) -> list[tuple[str, int]]:
    return [(one.entry.run_id, one.entry.seq) for one in await store.read_tail(TENANT, after, limit)]


async def test_entries_are_followed_from_a_position_in_the_order_of_commits(store: Store) -> None:
    begin = await store.tail_position()
    assert await followed(store, begin) == []
    await save(store, new_run(2))
    await save(store, new_run(1), other_tenants(new_run(3)))
    change, entry = moved(a_run(2), error="noted")
    await store.change([want(2)], writes(Write(runs=[change], entries=[entry])))
    assert await followed(store, begin) == [(run_id(2), 1), (run_id(1), 1), (run_id(2), 2)]
    assert [one.entry for one in await store.read_tail(TENANT, begin)][-1] == entry
    assert await followed(store, await store.tail_position()) == []
    assert [one.entry.run_id for one in await store.read_tail("other", begin)] == [run_id(3)]


async def test_each_entry_has_a_position_to_go_on_from(store: Store) -> None:
    begin = await store.tail_position()
    for number in range(5):
        await save(store, new_run(number))
    found = await store.read_tail(TENANT, begin)
    assert len({one.position for one in found}) == 5
    place, read = begin, []
    while page := await store.read_tail(TENANT, place, 2):
        read += page
        place = page[-1].position
    assert read == found
    assert not any(one.overtakes for one in found)


@pytest.mark.parametrize("text", ["", "x", "-1", "1.2", "9" * 40, "1.x.1", "\u0661"])
async def test_what_is_no_position_is_refused(store: Store, text: str) -> None:
    with pytest.raises(InvalidInput, match="position"):
        await store.read_tail(TENANT, text)


async def test_an_entry_is_not_followed_before_one_of_an_older_transaction(store: Store) -> None:
    """All stores: what was read once is a prefix of what is read later."""
    begin = await store.tail_position()
    seen: list[tuple[str, int]] = []
    for number in range(1, 4):
        await save(store, replace(new_run(number)))
        now = await followed(store, begin)
        assert now[: len(seen)] == seen
        seen = now
    assert len(seen) == 3
