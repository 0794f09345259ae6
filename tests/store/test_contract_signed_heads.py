"""Signatures over the heads of finished runs on every store: found once, kept as they are, deleted with their run."""

from __future__ import annotations

from msgspec.structs import replace
from tests.store.values import TENANT, a_run, new_run, run_id, save

from stepkeep.kernel.machine.states import RunState
from stepkeep.store.protocol import Store
from stepkeep.store.records import FIRST_ID, SignedHead, UnsignedHead

KEY, OTHER_KEY = "a" * 16, "b" * 16


def signed(number: int, key: str = KEY, **changes: object) -> SignedHead:
    made = SignedHead(
        tenant=TENANT,
        run_id=run_id(number),
        key_id=key,
        entries=1,
        head=b"h" * 32,
        public_key="c" * 64,
        signature="d" * 128,
        signed_at=7,
    )
    return replace(made, **changes)


async def unsigned(store: Store, key: str = KEY, after: str = FIRST_ID, limit: int = 10) -> list[str]:
    return [one.run_id for one in await store.find_unsigned(TENANT, key, after, limit)]


async def test_finished_runs_are_found_until_the_key_has_signed_them(store: Store, other: Store) -> None:
    ended = [a_run(number, RunState.SUCCEEDED, ended_at=5, open=0) for number in (1, 2, 3)]
    await save(store, *(new_run(number, run=run) for number, run in enumerate(ended, 1)), new_run(4))
    assert await unsigned(store) == [run_id(1), run_id(2), run_id(3)], "a run that goes on is not signed"
    [first] = await store.find_unsigned(TENANT, KEY, FIRST_ID, 1)
    assert first == UnsignedHead(run_id(1), ended[0].seq, ended[0].head)
    await store.add_signed_heads([signed(1), signed(2)])
    assert await unsigned(other) == [run_id(3)]
    assert await unsigned(other, OTHER_KEY, limit=2) == [run_id(1), run_id(2)]
    assert await unsigned(other, OTHER_KEY, after=run_id(2)) == [run_id(3)]
    assert await other.find_unsigned("another tenant", KEY, FIRST_ID, 10) == []


async def test_the_oldest_unfinished_run_is_found(store: Store, other: Store) -> None:
    assert await store.find_oldest_live(TENANT) is None
    ended = a_run(1, RunState.SUCCEEDED, ended_at=5, open=0)
    await save(store, new_run(1, run=ended), new_run(3), new_run(2))
    assert await other.find_oldest_live(TENANT) == run_id(2)
    assert await other.find_oldest_live("another tenant") is None


async def test_a_signature_is_read_as_it_was_kept_and_a_second_one_changes_nothing(store: Store) -> None:
    await save(store, new_run(1, run=a_run(1, RunState.SUCCEEDED, ended_at=5, open=0)))
    await store.add_signed_heads([signed(1, OTHER_KEY), signed(1)])
    await store.add_signed_heads([signed(1, signature="e" * 128)])
    assert await store.read_signed_heads(TENANT, run_id(1)) == [signed(1), signed(1, OTHER_KEY)]
    assert await store.read_signed_heads("another tenant", run_id(1)) == []
    assert await store.read_signed_heads(TENANT, "no run") == []
