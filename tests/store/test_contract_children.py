"""What every store promises about child runs: who may start one, what a recall and an end leave to do, what is kept."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.json import decode
from msgspec.structs import replace
from tests.store.values import TENANT, a_step, new_run, run_id, save

from stepkeep.kernel.errors import Conflict
from stepkeep.kernel.machine.rows import Attempt, Child, ChildMode, ChildState, ChildTodo, Notice, Recall, rows_of
from stepkeep.kernel.machine.states import AttemptState, Category, RunState
from stepkeep.store.change import Loaded, More, Want, Write
from stepkeep.store.connect import connect
from stepkeep.store.protocol import Store
from stepkeep.store.records import RunFilter, Words
from stepkeep.store.rows import BegunChild


def a_child(no: int = 0, **given: Any) -> Child:
    plain: dict[str, Any] = {
        "tenant": TENANT,
        "run_id": run_id(1),
        "no": no,
        "activation": 1,
        "child_id": run_id(100 + no),
        "workflow": "leaf",
        "version": 1,
        "mode": ChildMode.AWAITED,
        "state": ChildState.REQUESTED,
        "requested_at": 5,
        "todo": ChildTodo.START,
        "todo_at": 5,
    }
    return Child(**{**plain, **given})


async def write(store: Store, what: Write) -> None:
    def decide(loaded: Loaded) -> More | Write:
        return what

    await store.change([], decide)


async def asked(store: Store, *children: Child) -> None:
    await save(store, new_run(1, (a_step(1, 0),)))
    await write(store, Write(rows=rows_of(children)))


def recall(child: Child, how: str = "cancel") -> Recall:
    key = {"tenant": child.tenant, "run_id": child.run_id, "no": child.no, "activation": child.activation}
    return Recall(**key, recall=how, recalled_at=7, child_id=child.child_id)


def notice(child: Child, outcome: RunState = RunState.SUCCEEDED, **given: Any) -> Notice:
    return Notice(tenant=child.tenant, child_id=child.child_id, outcome=outcome, ended_at=9, **given)


def begun(child: Child) -> BegunChild:
    return BegunChild(tenant=child.tenant, run_id=child.run_id, no=child.no, activation=child.activation, started_at=6)


async def begin(store: Store, child: Child) -> None:
    await write(store, Write(rows=rows_of([begun(child)])))


async def test_a_search_for_roots_leaves_out_the_runs_that_another_run_asked_for(store: Store) -> None:
    child = a_child(child_id=run_id(3))
    await asked(store, child, a_child(1, child_id=run_id(4)))
    for number in (2, 3):
        await save(store, new_run(number, (a_step(number, 0),)))

    async def found(most: int = 9, **given: Any) -> tuple[list[str], int, int]:
        told = await store.search_runs(RunFilter(**{"tenant": TENANT, **given}), Words(roots=True), most)
        return [one.run.id for one in told.records], told.total, told.looked_at

    assert await found() == ([run_id(2), run_id(1)], 2, 3)
    assert await found(states=(RunState.RUNNING,)) == ([run_id(2), run_id(1)], 2, 3)
    assert await found(most=2) == ([run_id(2)], 1, 2), "what is looked at is bounded"
    assert await found(tenant="other") == ([], 0, 0)


async def test_a_child_is_what_was_asked_for(store: Store) -> None:
    first, second = a_child(0), a_child(1, todo_at=4, undoes=run_id(100))
    await asked(store, first, second)
    assert await store.children.read_all(TENANT, run_id(1)) == [first, second]
    assert await store.children.read_all(TENANT, run_id(1), 1) == [first]
    assert await store.children.read_all("other", run_id(1)) == []
    assert await store.children.find_due(10) == [second, first]
    assert await store.children.find_due(1) == [second]
    assert await store.children.read_link(TENANT, second.child_id) == second
    assert await store.children.read_link(TENANT, run_id(1)) is None


async def test_a_child_starts_once(store: Store) -> None:
    child = a_child()
    await asked(store, child)
    await begin(store, child)
    started = replace(child, state=ChildState.STARTED, started_at=6, todo=None, todo_at=None)
    assert await store.children.read_link(TENANT, child.child_id) == started
    assert await store.children.find_due(10) == []
    with pytest.raises(Conflict):
        await begin(store, child)


async def test_a_child_that_was_called_back_never_starts(store: Store) -> None:
    child = a_child()
    await asked(store, child)
    await write(store, Write(rows=rows_of([recall(child)])))
    [found] = await store.children.find_due(10)
    assert (found.state, found.todo, found.recall) == (ChildState.WITHDRAWN, ChildTodo.TELL, "cancel")
    with pytest.raises(Conflict):
        await begin(store, child)


async def test_a_write_that_starts_a_child_writes_nothing_if_it_is_called_back(store: Store) -> None:
    child = a_child()
    await asked(store, child)
    await write(store, Write(rows=rows_of([recall(child)])))
    with pytest.raises(Conflict):
        await write(store, Write(new_runs=[new_run(100)], rows=rows_of([begun(child)])))
    assert await store.read_run(TENANT, run_id(100)) is None


async def test_a_started_child_is_cancelled_and_its_end_is_told(store: Store) -> None:
    child = a_child()
    await asked(store, child)
    await begin(store, child)
    await write(store, Write(rows=rows_of([recall(child, "undo")])))
    [found] = await store.children.find_due(10)
    assert (found.state, found.todo, found.recall) == (ChildState.STARTED, ChildTodo.CANCEL, "undo")
    assert await store.children.save(replace(found, todo=None, todo_at=None), ChildTodo.CANCEL) is True
    assert await store.children.save(replace(found, todo=None, todo_at=None), ChildTodo.CANCEL) is False
    ended = notice(child, RunState.FAILED, category=Category.EXTERNAL, error="no")
    await write(store, Write(rows=rows_of([ended])))
    [told] = await store.children.find_due(10)
    assert (told.state, told.todo, told.outcome) == (ChildState.ENDED, ChildTodo.TELL, RunState.FAILED)
    assert (told.category, told.error, told.ended_at) == (Category.EXTERNAL, "no", 9)
    assert await store.children.save(replace(told, todo=None, todo_at=None), ChildTodo.TELL) is True
    assert await store.children.find_due(10) == []


async def test_an_end_is_noted_once_and_a_recall_after_it_changes_nothing(store: Store) -> None:
    child = a_child()
    await asked(store, child)
    await write(store, Write(rows=rows_of([notice(child)])))
    assert (await store.children.read_all(TENANT, run_id(1))) == [child], "it has not started"
    await begin(store, child)
    await write(store, Write(rows=rows_of([notice(child)])))
    [ended] = await store.children.read_all(TENANT, run_id(1))
    await write(store, Write(rows=rows_of([notice(child, RunState.FAILED), recall(child)])))
    assert await store.children.read_all(TENANT, run_id(1)) == [ended]


async def test_nobody_is_told_of_the_end_of_a_detached_child(store: Store) -> None:
    child = a_child(mode=ChildMode.DETACHED)
    await asked(store, child)
    await begin(store, child)
    await write(store, Write(rows=rows_of([notice(child)])))
    [ended] = await store.children.read_all(TENANT, run_id(1))
    assert (ended.state, ended.todo) == (ChildState.ENDED, None)
    assert await store.children.find_due(10) == []


async def test_what_is_put_off_is_not_due(store: Store) -> None:
    child = a_child()
    await asked(store, child)
    later = await store.now() + 60_000_000
    assert await store.children.save(replace(child, todo_at=later), ChildTodo.START) is True
    assert await store.children.find_due(10) == []


CONTRACT = [
    test_a_child_starts_once,
    test_a_child_that_was_called_back_never_starts,
    test_a_started_child_is_cancelled_and_its_end_is_told,
    test_an_end_is_noted_once_and_a_recall_after_it_changes_nothing,
    test_nobody_is_told_of_the_end_of_a_detached_child,
    test_what_is_put_off_is_not_due,
]

PLANTED = {
    "a child starts twice": ("begin_child", " and state = 'requested'", ""),
    "a child that ended is called back": ("recall_child", " and state in ('requested', 'started')", ""),
    "a child ends twice": ("end_child", " and state = 'started'", ""),
    "what was done already is done again": ("update_child", " and todo = ?13", " and ?13 = ?13"),
    "the end of a detached child is told": ("end_child", "case mode when 'awaited' then 'tell' end", "'tell'"),
    "what is put off is due": ("find_due_children", " and todo_at <= ?1", " and ?1 = ?1"),
}


@pytest.mark.parametrize("bug", PLANTED)
async def test_a_bug_in_a_statement_is_found(bug: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from stepkeep.store.sqlite import change

    statement, right, wrong = PLANTED[bug]
    text = getattr(change.SQL, statement)
    assert right in text
    planted = SimpleNamespace(**{**vars(change.SQL), statement: text.replace(right, wrong)})
    monkeypatch.setattr(change, "SQL", planted)
    found = 0
    for number, check in enumerate(CONTRACT):
        store = connect(f"sqlite:///{tmp_path}/{number}.db")
        await store.open()
        await store.migrate()
        tables: Any = store.children
        tables._sql = planted
        try:
            await check(store)
        except (Exception, pytest.fail.Exception):  # noqa: BLE001 - found, by whatever is wrong first
            found += 1
        finally:
            await store.close()
    assert found > 0, bug


async def test_the_cost_of_a_run_is_that_of_the_tree_that_it_waits_for(store: Store) -> None:
    awaited, detached = a_child(0), a_child(1, mode=ChildMode.DETACHED)
    below = a_child(0, run_id=run_id(100), child_id=run_id(200))
    await asked(store, awaited, detached)
    for number in (100, 101, 200):
        await save(store, new_run(number, (a_step(number, 0),)))
    await write(store, Write(rows=rows_of([below])))
    spent = [
        Attempt(TENANT, run_id(number), 0, 1, 1, AttemptState.SUCCEEDED, 1, 5, 6, cost=b"%d" % number)
        for number in (1, 100, 101, 200)
    ]
    await write(store, Write(attempts=spent))
    found: dict[str, Any] = {}

    def decide(loaded: Loaded) -> More | Write:
        found.update({key[1]: sorted(map(decode, filter(None, costs))) for key, costs in loaded.costs.items()})
        return Write()

    await store.change([Want(tenant=TENANT, run_id=run_id(number), costs=True) for number in (1, 100, 101)], decide)
    assert found == {
        run_id(1): [1, 100, 200],
        run_id(100): [100, 200],
        run_id(101): [101],
    }
