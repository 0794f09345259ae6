"""Plans that grow: rows of calls and of added steps, their settling, the wake-up of their owner, and their undo rows.

The first tests write rows as they are. The others decide with the real operations, and read what a store kept of it.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.json import decode
from msgspec.structs import replace
from tests.store.test_contract_retention import ended
from tests.store.test_contract_work import propose
from tests.store.values import (
    SECOND,
    TENANT,
    a_run,
    a_step,
    finished,
    key,
    load,
    moved,
    new_run,
    ready,
    run_id,
    running,
    save,
    settled,
    want,
    writes,
)
from tests.workbench import Bench, task

from stepkeep.kernel.decide.decision import Accepted
from stepkeep.kernel.definition import Definition, Flow, Handler, StepDefinition, Then, Undo
from stepkeep.kernel.errors import StoreError
from stepkeep.kernel.machine.outcomes import Added, Completed, Failed, NewCall, Suspended
from stepkeep.kernel.machine.rows import Called, Edge, Grown, Note, Read, Step
from stepkeep.kernel.machine.states import Category, OnFailure, RunState, StepState
from stepkeep.kernel.plan import Plan, written_template
from stepkeep.operations.pipeline.transact import Claim, Transactor
from stepkeep.store.change import Write
from stepkeep.store.protocol import Store
from stepkeep_lab.storecheck import bench

S = StepState
OWNER = a_step(1, 0, state=S.AWAITING_CHILDREN, fence=1, unmet=2, note=Note(grown=Grown(count=2, code="c0de", seen=0)))


def called(kind: str = "step", **given: Any) -> Note:
    call = {"name": "pay", "digest": "d1", "arguments": '{"text":"ß \\"x\\""}', "step": '{"name":"s","order":0}'}
    return Note(call=Called(kind=kind, **{**call, **given}))


def a_call(no: int, at: int = 5, **given: Any) -> Step:
    return ready(1, no, at=at, note=called(name=f"call {no}", queue=7, undo_queue=8), **given)


async def grown(store: Store, *calls: Step) -> None:
    """A run of one flow that made these calls, in the write that suspended it."""
    await save(store, new_run(1, (running(1, 0, due_at=SECOND),)))
    change, entry = moved(a_run(1))
    await store.change([want(1)], writes(Write(runs=[change], entries=[entry], steps=[OWNER], new_steps=list(calls))))


# -- rows ------------------------------------------------------------------------------------------------------------
async def test_the_rows_by_which_a_plan_grows_are_what_was_written(store: Store) -> None:
    followed = called(
        "then",
        needs=2,
        followers=(Edge(1, (S.SUCCEEDED, S.SKIPPED)), Edge(2, (S.SUCCEEDED,))),
        reads=(Read("facts", 0),),
    )
    rows = [OWNER, a_call(3), a_step(1, 4, unmet=2, note=followed), a_step(1, 10_000, note=called("continue"))]
    await grown(store, *rows[1:])
    assert await store.read_steps(TENANT, run_id(1)) == rows
    whole = (await load(store, want(1, whole=True))).steps[key(1)]
    assert whole == {row.no: row for row in rows}
    named = (await load(store, want(1, steps=(4, 10_000)))).steps[key(1)]
    assert named == {4: rows[2], 10_000: rows[3]}


async def test_a_call_is_claimed_like_any_step_and_after_those_of_lower_numbers(store: Store) -> None:
    await grown(store, a_call(4, at=1), a_call(3, at=9))
    assert [no for _, _, no in (await propose(store)).proposed] == [3, 4]
    assert await store.has_ready((7,))


async def test_a_call_that_is_recorded_already_is_refused_with_its_whole_write(store: Store) -> None:
    await grown(store, a_call(3))
    run = (await load(store, want(1))).runs[key(1)]
    change, entry = moved(run)
    again = Write(runs=[change], entries=[entry], steps=[replace(OWNER, unmet=9)], new_steps=[a_call(4), a_call(3)])
    with pytest.raises(StoreError):
        await store.change([want(1)], writes(again))
    assert await store.read_steps(TENANT, run_id(1)) == [OWNER, a_call(3)]
    assert (await load(store, want(1))).runs[key(1)].seq == run.seq


async def test_the_end_of_a_call_and_the_wake_up_of_its_owner_are_one_write(store: Store) -> None:
    await grown(store, a_call(3), a_call(4))
    run = (await load(store, want(1))).runs[key(1)]
    change, entry = moved(run)
    call = settled(a_call(3), note=replace(called(), output='{"n":1}'))
    woken = replace(OWNER, state=S.READY, ready_at=7, unmet=1)
    await store.change([want(1)], writes(Write(runs=[change], entries=[entry], steps=[call, woken])))
    assert await store.read_steps(TENANT, run_id(1)) == [woken, call, a_call(4)]
    assert [no for _, _, no in (await propose(store)).proposed] == [0, 4]
    assert await store.read_outputs([(*key(1), 3), (*key(1), 4)]) == {(*key(1), 3): b'{"n":1}', (*key(1), 4): None}


async def test_the_rows_of_a_grown_plan_go_with_their_run(store: Store) -> None:
    await save(store, ended(2))
    await grown(store, a_call(3))
    run = (await load(store, want(1))).runs[key(1)]
    change, entry = finished(run)
    steps = [settled(OWNER, unmet=0), settled(a_call(3)), settled(a_step(1, 5), note=called())]
    await store.change([want(1)], writes(Write(runs=[change], entries=[entry], steps=steps[:2], new_steps=steps[2:])))
    assert await store.delete_runs(TENANT, [run_id(1)]) == [run_id(1)]
    assert await store.read_steps(TENANT, run_id(1)) == []


# -- decisions -------------------------------------------------------------------------------------------------------
class Grower(Bench):
    """Reports on one step after the other, by number."""

    async def one(self, no: int, outcome: Any = None) -> None:
        [claim] = [claim for claim in await self.claims() if claim.step.no == no]
        self.held.remove(claim)
        assert isinstance(await self.report(claim, outcome), Accepted)

    async def claims(self) -> list[Claim]:
        self.held = [*getattr(self, "held", []), *await self.claim(100)]
        return self.held

    async def rows(self, run: str) -> dict[int, Step]:
        return {step.no: step for step in await self.store.read_steps(bench.TENANT, run)}

    async def states(self, run: str) -> dict[int, str]:
        return {no: str(step.state) for no, step in (await self.rows(run)).items()}

    async def output(self, run: str, no: int) -> Any:
        place = (bench.TENANT, run, no)
        found = await self.transactor.payloads.outputs(await self.store.read_outputs([place]))
        return None if (given := found[place]) is None else decode(given)


async def begun(store: Store, growth: Flow | Then, **policy: Any) -> tuple[Grower, Plan, str]:
    grower = Grower(Transactor(store))
    steps = (task("s", growth=growth, **policy), task("after", 1, ["s"]))
    plan = await grower.publish(Definition(name="grows", version=1, steps=steps))
    return grower, plan, (await grower.begin(plan)).run_id


def a_new(plan: Plan, name: str, *after: int, kind: str = "step", undo: bool = False, **more: Any) -> NewCall:
    queue = plan.steps[0].queue
    hook = Undo(executor=Handler(name="noop")) if undo else None
    template = StepDefinition(name="s", order=0, executor=Handler(name="noop"), undo=hook, **more)
    return NewCall(
        kind=kind,
        name=name,
        digest=f"digest of {name}",
        arguments=b'{"name":"%s"}' % name.encode(),
        step=written_template(template),
        queue=queue,
        undo_queue=queue,
        after=tuple(Edge(place, (S.SUCCEEDED,)) for place in after),
    )


def said(value: Any) -> Completed:
    return Completed(output=str(value).encode())


async def test_a_plan_grows_by_calls_and_each_end_wakes_the_flow(store: Store) -> None:
    """Numbers 5 and 6 are calls: two steps, their undo steps and the place of a check come before them."""
    grower, plan, run = await begun(store, Flow(max=4))
    await grower.one(0, Suspended(calls=(a_new(plan, "a"), a_new(plan, "b"))))
    first = (await grower.rows(run))[5]
    assert first.note is not None
    assert first.note.call is not None
    assert (first.note.call.name, first.note.call.arguments) == ("a", '{"name":"a"}')
    assert await grower.states(run) == {0: "awaiting_children", 1: "pending", 5: "ready", 6: "ready"}
    await grower.one(5, said(1))
    assert (await grower.rows(run))[0].unmet == 1
    await grower.one(0, Suspended(seen=1))
    await grower.one(6, said(2))
    assert await grower.states(run) == {0: "ready", 1: "pending", 5: "succeeded", 6: "succeeded"}
    assert [await grower.output(run, no) for no in (5, 6)] == [1, 2]
    await grower.one(0, said(3))
    assert await grower.states(run) == {0: "succeeded", 1: "ready", 5: "succeeded", 6: "succeeded"}
    await grower.one(1)
    assert await grower.state(run) is RunState.SUCCEEDED


async def test_a_call_that_settles_before_the_suspension_wakes_the_flow_at_once(store: Store) -> None:
    grower, plan, run = await begun(store, Flow(max=4))
    await grower.one(0, Suspended(calls=(a_new(plan, "a"), a_new(plan, "b"))))
    await grower.one(5)
    await grower.claims()
    await grower.one(6)
    await grower.one(0, Suspended(calls=(a_new(plan, "c"),), seen=1))
    assert (await grower.states(run))[0] == "ready", "the end of the second call is not lost"
    assert (await grower.rows(run))[0].unmet == 1


async def test_calls_of_a_flow_that_fails_are_undone_last_first(store: Store) -> None:
    grower, plan, run = await begun(store, Flow(max=4), on_failure=OnFailure.COMPENSATE)
    await grower.one(0, Suspended(calls=(a_new(plan, "a", undo=True), a_new(plan, "b", undo=True))))
    await grower.one(6, said(2))
    await grower.one(5, said(1))
    await grower.one(0, Failed(category=Category.VALIDATION, error="no", final=True))
    undone = []
    while await grower.state(run) is RunState.COMPENSATING:
        [claim] = await grower.claims()
        undone.append(claim.planned.name)
        row = (await grower.rows(run))[claim.step.no]
        assert (row.state, row.fence) == (S.RUNNING, 1)
        await grower.one(claim.step.no)
    assert undone == ["undo:s[0]", "undo:s[1]"], "the call that was completed last is undone first"
    rows = await grower.rows(run)
    assert [rows[no].state for no in (9, 10)] == [S.SUCCEEDED, S.SUCCEEDED], "undo rows follow the calls"
    assert await grower.state(run) is RunState.ROLLED_BACK


async def test_added_steps_open_behind_each_other_and_their_owner_has_all_results(store: Store) -> None:
    grower, plan, run = await begun(store, Then(max=4))
    steps = (a_new(plan, "a", kind="then"), a_new(plan, "b", 0, kind="then"), a_new(plan, "c", 0, 1, kind="then"))
    await grower.one(0, Added(calls=steps, output=b'"mine"'))
    assert await grower.states(run) == {0: "awaiting_children", 1: "pending", 5: "ready", 6: "pending", 7: "pending"}
    rows = await grower.rows(run)
    assert (rows[0].unmet, rows[6].unmet, rows[7].unmet) == (3, 1, 2)
    followers = [rows[no].note.call.followers for no in (5, 6, 7)]  # type: ignore[union-attr]
    assert [[edge.place for edge in one] for one in followers] == [[1, 2], [2], []]
    await grower.one(5, said(1))
    assert [(await grower.rows(run))[no].unmet for no in (0, 6, 7)] == [2, 0, 1]
    await grower.one(6, said(2))
    await grower.one(7, said(3))
    assert (await grower.states(run))[0] == "succeeded"
    assert await grower.output(run, 0) == {"output": "mine", "steps": {"a": 1, "b": 2, "c": 3}}


async def test_an_added_step_adds_rows_behind_those_of_its_owner(store: Store) -> None:
    grower, plan, run = await begun(store, Then(max=4))
    await grower.one(0, Added(calls=(a_new(plan, "a", kind="then"),)))
    await grower.one(5, Added(calls=(a_new(plan, "b", kind="then"), a_new(plan, "c", 0, kind="then")), output=b"1"))
    assert await grower.states(run) == {
        0: "awaiting_children", 1: "pending", 5: "succeeded", 6: "ready", 7: "pending",
    }  # fmt: skip
    await grower.one(6, said(2))
    await grower.one(7, said(3))
    assert await grower.output(run, 0) == {"output": None, "steps": {"a": 1, "b": 2, "c": 3}}


async def test_an_added_step_that_fails_fails_its_owner_and_cancels_the_rest(store: Store) -> None:
    grower, plan, run = await begun(store, Then(max=4), on_failure=OnFailure.COMPENSATE)
    steps = (
        a_new(plan, "a", kind="then", undo=True),
        a_new(plan, "b", 0, kind="then"),
        a_new(plan, "c", 1, kind="then"),
    )
    await grower.one(0, Added(calls=steps))
    await grower.one(5, said(1))
    await grower.one(6, Failed(category=Category.VALIDATION, error="no", final=True))
    rows = await grower.rows(run)
    assert {no: rows[no].state for no in (0, 5, 6, 7)} == {0: S.FAILED, 5: S.SUCCEEDED, 6: S.FAILED, 7: S.CANCELLED}
    assert (rows[0].category, rows[0].error) == (Category.VALIDATION, "s[1] failed: no")
    await grower.one(9)
    assert (await grower.rows(run))[9].state is S.SUCCEEDED
    assert await grower.state(run) is RunState.ROLLED_BACK
