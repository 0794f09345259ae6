"""Messages by business key: read under the lock of the key, saved once, kept until they are forgotten."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace
from tests.store.values import TENANT, a_run, key, new_run, run_id, save, want

from stepkeep.kernel.errors import Contended, InvariantBroken
from stepkeep.kernel.machine.rows import rows_of
from stepkeep.store.change import Loaded, More, Write
from stepkeep.store.protocol import Store
from stepkeep.store.records import FIRST_MESSAGE
from stepkeep.store.rows import KeyWant, Mailbox, MailboxMessage

FAR = 9_000_000_000_000_000
K1 = KeyWant(tenant=TENANT, key="order-1", ids=("m-1", "m-2"), kept=True)


def sent(message_id: str, number: int = 1, **given: Any) -> MailboxMessage:
    return MailboxMessage(
        **{
            "tenant": TENANT,
            "key": "order-1",
            "id": message_id,
            "number": number,
            "name": "paid",
            "payload": b'{"amount":1}',
            "sender": "shop",
            "vouched_by": None,
            "key_id": None,
            "arrived_at": 5,
            "expires_at": FAR,
            "forget_at": FAR,
            **given,
        }
    )


async def keep(store: Store, *messages: MailboxMessage) -> None:
    await store.change((), lambda loaded: Write(rows=rows_of(messages)))


async def look(store: Store, *wants: KeyWant) -> list[Mailbox]:
    """What a change sees of these keys."""
    seen: list[Mailbox] = []

    def decide(loaded: Loaded) -> More | Write:
        if not loaded.mailboxes:
            return More(keys=wants)
        seen[:] = [loaded.mailboxes[one.business_key] for one in wants]
        return Write()

    await store.change((), decide)
    return seen


async def test_what_is_kept_is_read_in_order_with_its_size_and_last_number(store: Store) -> None:
    full = sent("m-2", 2, vouched_by="portal", key_id="k1", payload=b'"\xc3\xbc"')
    others = [sent("m-1", 1, key="order-2"), sent("m-1", 1, tenant="other")]
    await keep(store, full, sent("m-1", 1), sent("m-3", 3), *others)
    [box, other, nothing] = await look(
        store, K1, KeyWant(tenant=TENANT, key="order-2"), KeyWant(tenant=TENANT, key="nothing", kept=True)
    )
    assert [one.id for one in box.kept] == ["m-1", "m-2", "m-3"]
    assert box.known == {"m-1": sent("m-1", 1), "m-2": full}
    assert (box.count, box.size_bytes, box.last_number, box.holder) == (3, 28, 3, None)
    assert (other.count, other.kept, other.known) == (1, (), {})
    assert nothing == Mailbox(known={})


async def test_the_holder_of_a_key_is_the_live_run_that_has_it(store: Store) -> None:
    await save(store, new_run(1, run=a_run(1, business_key="order-1")))
    assert [box.holder for box in await look(store, K1)] == [run_id(1)]


async def test_a_delivered_message_has_no_payload_and_stays_as_it_is(store: Store) -> None:
    await keep(store, sent("m-1"))
    delivered = sent("m-1", payload=None, run_id=run_id(1))
    await keep(store, delivered)
    [box] = await look(store, K1)
    assert (box.known["m-1"], box.kept, box.count) == (delivered, (), 0)
    for again in (sent("m-1"), replace(delivered, run_id=run_id(2))):
        with pytest.raises(Contended):
            await keep(store, again)
    with pytest.raises(InvariantBroken):
        await keep(store, sent("m-2", run_id=run_id(1)))
    with pytest.raises(InvariantBroken):
        await keep(store, sent("m-2", forget_at=4, expires_at=5))


async def test_an_id_that_is_to_be_forgotten_may_be_used_again(store: Store) -> None:
    await keep(store, sent("m-1", payload=None, run_id=run_id(1), expires_at=6, forget_at=7))
    with pytest.raises(Contended):
        await keep(store, sent("m-1", arrived_at=6))
    await keep(store, sent("m-1", arrived_at=7))
    assert (await look(store, K1))[0].known["m-1"].payload is not None


async def test_kept_messages_are_listed_page_by_page(store: Store) -> None:
    rows = [sent(f"m-{no}", no, key=f"order-{no % 2}") for no in range(6)]
    await keep(store, *rows, sent("gone", payload=None), sent("m-9", tenant="other"))
    ordered = sorted(rows, key=lambda one: (one.key, one.number, one.id))
    assert await store.list_mailbox(TENANT) == ordered
    first = await store.list_mailbox(TENANT, limit=4)
    last = first[-1]
    assert first + await store.list_mailbox(TENANT, None, (last.key, last.number, last.id)) == ordered
    assert await store.list_mailbox(TENANT, "order-1") == [one for one in ordered if one.key == "order-1"]
    assert await store.list_mailbox(TENANT, "order-1", ("order-1", 3, "m-3"), 1) == [rows[5]]
    assert await store.list_mailbox(TENANT, "nothing", FIRST_MESSAGE) == []


async def test_dropping_takes_the_payload_and_keeps_the_id(store: Store) -> None:
    await keep(store, sent("m-1"), sent("m-2", 2), sent("m-3", 3), sent("m-1", key="order-2"))
    assert await store.drop_mailbox(TENANT, "order-1", "m-2") == ["m-2"]
    assert await store.drop_mailbox(TENANT, "order-1", "m-2") == []
    assert await store.drop_mailbox("other", "order-1") == []
    assert await store.drop_mailbox(TENANT, "order-1") == ["m-1", "m-3"]
    [box] = await look(store, K1)
    assert (box.count, box.known["m-1"].payload, box.known["m-1"].run_id) == (0, None, None)
    assert box.known["m-1"].expires_at <= await store.now()
    assert [one.key for one in await store.list_mailbox(TENANT)] == ["order-2"]


async def test_messages_are_forgotten_when_their_time_has_come_oldest_first(store: Store) -> None:
    await keep(
        store,
        *(sent(f"m-{no}", no, expires_at=no, forget_at=10 - no) for no in range(5)),
        sent("delivered", payload=None, run_id=run_id(1), expires_at=1, forget_at=1, tenant="other"),
        sent("later", 9),
    )
    assert await store.forget_mailbox(2) == 2
    assert [one.id for one in await store.list_mailbox(TENANT)] == ["m-0", "m-1", "m-2", "m-3", "later"]
    assert await store.forget_mailbox(100) == 4
    assert await store.forget_mailbox(100) == 0
    assert [one.id for one in await store.list_mailbox(TENANT)] == ["later"]


async def test_a_run_that_is_wanted_after_a_key_starts_the_change_again(store: Store) -> None:
    """Runs are locked before keys, everywhere: otherwise two changes could wait for each other."""
    await save(store, new_run(1), new_run(2))
    seen: list[tuple[bool, bool]] = []

    def decide(loaded: Loaded) -> More | Write:
        seen.append((bool(loaded.mailboxes), key(1) in loaded.runs))
        if not loaded.mailboxes:
            return More(keys=(K1,))
        return Write() if key(1) in loaded.runs else More(wants=(want(1),))

    await store.change((), decide)
    assert seen[-1] == (True, True)
    if not store.url.startswith("sqlite"):
        assert seen[-2] == (False, True), "the run was locked first in the second try"


async def test_changes_of_one_key_come_one_after_the_other(store: Store, other: Store) -> None:
    """Each adds the next number, from what it reads under the lock of the key."""

    async def add(on: Store, place: int) -> None:
        def decide(loaded: Loaded) -> More | Write:
            box = loaded.mailboxes.get(K1.business_key)
            if box is None:
                return More(keys=(K1,))
            return Write(rows=rows_of([sent(f"n-{place}", box.last_number + 1)]))

        await on.change((), decide)

    await asyncio.gather(*(add((store, other)[place % 2], place) for place in range(20)))
    assert [one.number for one in await store.list_mailbox(TENANT)] == list(range(1, 21))
