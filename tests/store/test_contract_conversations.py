"""Conversations: items by key and place, saved together, counted, bounded, removed and deleted, for each tenant."""

import pytest
from tests.store.values import TENANT

from stepkeep.store import conversations
from stepkeep.store.conversations import BEHIND, ItemRange, SavedItem
from stepkeep.store.protocol import Store


async def told(store: Store, name: str = "ada", **asked: object) -> list[tuple[str, int, bytes]]:
    return [(one.key, one.ordinal, one.value) for one in await store.conversations.read(TENANT, name, **asked)]  # type: ignore[arg-type]


async def size(store: Store, name: str = "ada") -> tuple[int, int] | None:
    found = await store.conversations.show(TENANT, name)
    return None if found is None else (found.items, found.size_bytes)


async def test_items_come_behind_those_of_their_key_or_stand_where_they_are_put(store: Store) -> None:
    save = store.conversations.save
    items = [SavedItem("turn", b"1"), SavedItem("\u00e9", b"{}", 7), SavedItem("turn", b"22")]
    assert await save(TENANT, "ada", items) == [0, 7, 1]
    assert await save(TENANT, "ada", [SavedItem("turn", b"333")]) == [2]
    assert await told(store) == [("turn", 0, b"1"), ("turn", 1, b"22"), ("turn", 2, b"333"), ("\u00e9", 7, b"{}")]
    assert await size(store) == (4, 8)
    # One that is there is replaced, or kept.
    assert await save(TENANT, "ada", [SavedItem("turn", b"4444", 1), SavedItem("turn", b"5", 0, True)]) == [1, 0]
    assert (await told(store))[:2] == [("turn", 0, b"1"), ("turn", 1, b"4444")]
    assert await size(store) == (4, 10)
    assert await store.conversations.read("other", "ada") == await store.conversations.list_all("other") == []


async def test_items_are_read_in_pages_from_both_ends(store: Store) -> None:
    await store.conversations.save(TENANT, "ada", [SavedItem(f"turn {place}", b"1", 5) for place in range(5)])
    await store.conversations.save(TENANT, "ada", [SavedItem("state", b"2")])
    turns = ItemRange("turn ", "turn " + BEHIND)
    assert [key for key, _, _ in await told(store, which=turns, limit=2)] == ["turn 0", "turn 1"]
    assert [key for key, _, _ in await told(store, which=turns, past=("turn 3", 5))] == ["turn 4"]
    assert [key for key, _, _ in await told(store, which=turns, newest=True, limit=2)] == ["turn 4", "turn 3"]
    assert [key for key, _, _ in await told(store, newest=True, past=("turn 0", 5))] == ["state"]
    found = await store.conversations.find(TENANT, "ada", ["turn 3", "none", "state"])
    assert [one.key for one in found] == ["state", "turn 3"]


async def test_removed_items_count_no_longer(store: Store) -> None:
    await store.conversations.save(TENANT, "ada", [SavedItem("turn", b"1" * place) for place in range(1, 6)])
    one = ItemRange("turn", "turn\x01", 4, 4)
    assert [await store.conversations.remove(TENANT, "ada", [one]) for _ in range(2)] == [1, 0]
    assert await size(store) == (4, 10)
    assert await store.conversations.remove(TENANT, "ada", [ItemRange("turn", "turn" + BEHIND, 1, 2)]) == 2
    assert await told(store) == [("turn", 0, b"1"), ("turn", 3, b"1111")]
    assert await size(store) == (2, 5)
    assert await store.conversations.save(TENANT, "ada", [SavedItem("turn", b"7")]) == [4]
    assert await store.conversations.remove(TENANT, "none", [ItemRange()]) == 0


async def test_what_does_not_fit_is_not_written(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from stepkeep_lab.simulation import conversation_tables

    for module in (conversations, conversation_tables):
        monkeypatch.setattr(module, "MOST_ITEMS", 2)
        monkeypatch.setattr(module, "MOST_BYTES", 10)
    await store.conversations.save(TENANT, "ada", [SavedItem("turn", b"1")])
    assert await store.conversations.save(TENANT, "ada", [SavedItem("turn", b"2"), SavedItem("turn", b"3")]) is None
    assert await store.conversations.save(TENANT, "ada", [SavedItem("turn", b"1" * 10)]) is None
    assert await store.conversations.save(TENANT, "ada", [SavedItem("turn", b"1" * 10, 0)]) == [0]
    assert await size(store) == (1, 10)


async def test_conversations_are_listed_deleted_and_found_by_age(store: Store) -> None:
    for name in ("bea", "ada"):
        await store.conversations.save(TENANT, name, [SavedItem("turn", b"1")])
    assert [one.name for one in await store.conversations.list_all(TENANT)] == ["ada", "bea"]
    assert [one.name for one in await store.conversations.list_all(TENANT, "ada", 1)] == ["bea"]
    changed = (await store.conversations.list_all(TENANT))[0].changed_at
    assert "ada" not in await store.conversations.find_old(TENANT, changed, 10)
    assert "ada" in await store.conversations.find_old(TENANT, changed + 1, 10)
    assert not await store.conversations.delete(TENANT, "ada", changed)
    assert await store.conversations.delete(TENANT, "ada", changed + 1)
    assert not await store.conversations.delete(TENANT, "ada")
    assert (await told(store), await size(store), await size(store, "bea")) == ([], None, (1, 1))
