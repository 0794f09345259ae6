"""Gates and decisions: written with the run, read back as they were, changed only as far as they may, gone with it."""

import msgspec
import pytest
from msgspec.structs import replace
from tests.store.values import TENANT, a_run, a_step, finished, key, moved, new_run, run_id, save, want, writes

from stepkeep.kernel.errors import StoreError
from stepkeep.kernel.machine.rows import Gate, GateChange, Vote, rows_of
from stepkeep.store.change import Write
from stepkeep.store.protocol import Store

DIGEST = "ab" * 32


def a_gate(number: int, no: int = 0, activation: int = 1, **given: object) -> Gate:
    about = {"tenant": TENANT, "run_id": run_id(number), "no": no, "activation": activation, "opened_at": 5, "level": 0}
    return Gate(**{**about, "due_at": 9, "shown": b'{"prompt":"Ship?"}', "shown_digest": DIGEST, **given})  # type: ignore[arg-type]


def a_vote(number: int, person: str, **given: object) -> Vote:
    about = {"tenant": TENANT, "run_id": run_id(number), "no": 0, "activation": 1, "person": person, "level": 0}
    said = {"on_behalf_of": None, "decision": "approved", "at": 6, "comment": "\u00fc fine"}
    return Vote(**{**about, **said, **given})  # type: ignore[arg-type]


WHOLE = {
    "on_behalf_of": "cyd",
    "evidence": b'["doc:7"]',
    "key_id": "k1",
    "delegation_id": "d1",
    "held_roles": ("role:finance", "group:board"),
    "vouched_by": "portal",
    "shown_digest": DIGEST,
}


async def write(store: Store, number: int, *rows: msgspec.Struct) -> None:
    """Write these rows with the next entry of a run."""
    change, entry = moved(a_run(number))
    await store.change([want(number)], writes(Write(runs=[change], entries=[entry], rows=rows_of(rows))))


async def test_gates_and_decisions_are_read_as_they_were_written(store: Store) -> None:
    first = replace(a_gate(1), due_at=None)
    await save(store, new_run(1, (a_step(1),), gates=(first,)), new_run(2))
    second, votes = a_gate(1, 2, 7), [a_vote(1, "bea", **WHOLE), a_vote(1, "dan", decision="rejected", comment="")]
    await write(store, 1, second, *votes)
    assert await store.read_gates(*key(1)) == [first, second]
    assert await store.read_votes(*key(1)) == votes
    assert await store.read_gates(*key(2)) == await store.read_votes(*key(2)) == []
    assert await store.read_gates("other", run_id(1)) == []
    [whole] = await store.read_whole(TENANT, [run_id(1)], with_messages=True)
    assert (list(whole.gates), list(whole.votes)) == ([first, second], votes)


async def test_a_gate_changes_its_level_and_its_deadline(store: Store) -> None:
    await save(store, new_run(1, (a_step(1),), gates=(a_gate(1),)))
    about = {"tenant": TENANT, "run_id": run_id(1), "no": 0, "activation": 1}
    await write(store, 1, GateChange(**about, level=1, due_at=20))  # type: ignore[arg-type]
    assert await store.read_gates(*key(1)) == [a_gate(1, level=1, due_at=20)]


async def test_a_change_of_a_gate_that_was_never_recorded_changes_nothing(store: Store) -> None:
    await save(store, new_run(1, (a_step(1),)))
    change = GateChange(tenant=TENANT, run_id=run_id(1), no=0, activation=0, level=0, closed_at=3, outcome="approved")
    await write(store, 1, change)
    assert await store.read_gates(*key(1)) == []


async def test_a_person_has_one_decision_about_an_opening(store: Store) -> None:
    await save(store, new_run(1, (a_step(1),)))
    await write(store, 1, a_vote(1, "bea"))
    again, entry = moved(replace(a_run(1), seq=2))
    with pytest.raises(StoreError):
        await store.change([want(1)], writes(Write(runs=[again], entries=[entry], rows=rows_of([a_vote(1, "bea")]))))
    assert await store.read_votes(*key(1)) == [a_vote(1, "bea")]


async def test_open_gates_are_listed_in_order_page_by_page(store: Store) -> None:
    closed = a_gate(1, 5, closed_at=9, outcome="approved")
    await save(store, new_run(2, gates=(a_gate(2),)), new_run(1, gates=(a_gate(1, 3), a_gate(1, 1), closed)))
    first = await store.list_open_gates(TENANT, limit=2)
    assert [(gate.run_id, gate.no) for gate in first] == [(run_id(1), 1), (run_id(1), 3)]
    rest = await store.list_open_gates(TENANT, (first[-1].run_id, first[-1].no))
    assert [(gate.run_id, gate.no) for gate in rest] == [(run_id(2), 0)]
    assert await store.list_open_gates("other") == []


async def test_gates_and_decisions_are_deleted_with_their_run(store: Store) -> None:
    await save(store, new_run(1, gates=(a_gate(1),)))
    change, entry = finished(a_run(1))
    closed = GateChange(tenant=TENANT, run_id=run_id(1), no=0, activation=1, level=0, closed_at=9, outcome="approved")
    votes = [a_vote(1, "bea")]
    what = Write(runs=[change], entries=[entry], rows=rows_of([closed, *votes]))
    await store.change([want(1)], writes(what))
    assert (await store.read_votes(*key(1)), await store.list_open_gates(TENANT)) == (votes, [])
    assert await store.delete_runs(TENANT, [run_id(1)]) == [run_id(1)]
    assert await store.read_gates(*key(1)) == []
    assert await store.read_votes(*key(1)) == []
