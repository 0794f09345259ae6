"""The preview of a rollback and the certificate cover the whole tree of a run, on both stores."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import stepkeep as sk
from stepkeep.conformance import policies
from stepkeep.conformance.contract import Contract, read_contract
from stepkeep.conformance.tree import TreeRun, TreeVerdict, judge_tree
from stepkeep.evidence.verifier import Pack, verify
from stepkeep.kernel.definition import Budget, Definition, Effect, Map, OnExceeded, encode_definition
from stepkeep.kernel.machine.outcomes import Completed
from stepkeep.kernel.machine.states import Category, OnFailure, Rollback, RunState, StepState
from stepkeep.operations.continuation.rollback import rollback_preview
from stepkeep.operations.pipeline.expire import sweep_timers
from tests.evidence.test_pack import unzipped
from tests.operations.test_child_rollback import BAD, HOOK, LEAF, ended, parent, sub
from tests.operations.test_children import call, children, finish, flow, look_after
from tests.workbench import SECOND, TENANT, Bench, on, task

MIDDLE = flow("middle", sub(name="inner"), task("own", 1, ["inner"], undo=HOOK))
TOP = parent(
    task("before", 0, undo=HOOK),
    sub("middle", order=1, after=("before",)),
    task("last", 2, ["sub"], on_failure=OnFailure.COMPENSATE),
)
IN_ORDER = [
    (0, "sub", "undo:sub"),
    (1, "own", "undo:own"),
    (1, "inner", "undo:inner"),
    (2, "second", "undo:second"),
    (2, "first", "undo:first"),
    (0, "before", "undo:before"),
]


async def begun(bench: Bench, *definitions: Definition, rounds: int) -> str:
    """A run of the last definition after so many rounds of work."""
    for one in definitions[:-1]:
        await bench.publish(one)
    run = await bench.start(definitions[-1])
    for _ in range(rounds):
        await look_after(bench)
        for claim in await bench.claim(10):
            await bench.report(claim, Completed(output=b"1"))
    await look_after(bench)
    return run


def order(told: dict[str, Any]) -> list[tuple[int, str, str]]:
    assert [one["position"] for one in told["undo"]] == list(range(1, len(told["undo"]) + 1))
    return [(one["level"], one["step"], one["undo"]) for one in told["undo"]]


async def test_the_preview_lists_the_undo_steps_of_all_levels_in_their_order(database_url: str) -> None:
    async with on(database_url) as bench:
        run = await begun(bench, LEAF, MIDDLE, TOP, rounds=4)
        told = await rollback_preview(bench.transactor, run, tenant=TENANT)
        assert order(told) == IN_ORDER
        assert (told["possible"], told["ends"], told["rollback"]) == (True, "rolled_back", "complete")
        await bench.cancel(run, compensate=True)
        under_way = await rollback_preview(bench.transactor, run, tenant=TENANT)
        assert order(under_way) == IN_ORDER
        await look_after(bench)
        [claim] = await bench.claim(1)
        await bench.report(claim)
        later = await rollback_preview(bench.transactor, run, tenant=TENANT)
        assert order(later) == [one for one in IN_ORDER if one[1] != "own"]
        await finish(bench)
        assert await ended(bench, run) == (RunState.ROLLED_BACK, Rollback.COMPLETE)


async def test_a_live_child_undoes_itself_before_its_parent_does(database_url: str) -> None:
    async with on(database_url) as bench:
        run = await begun(bench, LEAF, MIDDLE, TOP, rounds=2)
        told = await rollback_preview(bench.transactor, run, tenant=TENANT)
        assert order(told) == [(2, "first", "undo:first"), (0, "before", "undo:before")]
        waiting = [(one["level"], one["step"]) for one in told["running"]]
        assert waiting == [(0, "sub"), (1, "inner")]
        assert told["cannot_undo"] == []


async def test_what_a_child_cannot_undo_is_named_with_its_run(database_url: str) -> None:
    leaf = flow("leaf", task("told", 0, effect=Effect.IRREVERSIBLE), task("second", 1, ["told"], undo=HOOK))

    async with on(database_url) as bench:
        run = await begun(bench, leaf, MIDDLE, TOP, rounds=4)
        told = await rollback_preview(bench.transactor, run, tenant=TENANT)
        [left] = told["cannot_undo"]
        assert (left["level"], left["step"], left["reason"]) == (2, "told", "no_undo")
        assert left["run_id"] != run
        assert (told["ends"], told["rollback"]) == ("failed", "partial")
        await bench.cancel(run, compensate=True)
        await finish(bench)
        assert await ended(bench, run) == (RunState.FAILED, Rollback.PARTIAL)


async def rolled_back_tree(database_url: str) -> str:
    async with on(database_url) as bench:
        run = await begun(bench, LEAF, MIDDLE, TOP, rounds=4)
        [claim] = await bench.claim(1)
        await bench.report(claim, BAD)
        await finish(bench)
        return run


async def test_the_certificate_of_a_root_covers_its_tree(database_url: str) -> None:
    run = await rolled_back_tree(database_url)
    with sk.open(database_url) as engine:
        certificate = engine.certify(run)
        assert certificate.ok, certificate.page()
        tree = certificate.as_json()["tree"]
        assert (tree["ok"], tree["compared"], tree["missing"], tree["findings"]) == (True, 4, (), ())
        steps = {(one["step"], one["state"], one["undoes"] is not None) for one in tree["runs"]}
        assert steps == {
            ("sub", "succeeded", False),
            ("inner", "succeeded", False),
            ("undo:sub", "rolled_back", True),
            ("undo:inner", "rolled_back", True),
        }
        assert "Runs below it: 4 of 4 conform by themselves." in certificate.page()
        below = next(one["run"] for one in tree["runs"] if one["step"] == "inner")
        assert engine.certify(below).as_json()["tree"] is None


async def test_damage_below_a_root_spoils_its_certificate(database_url: str) -> None:
    run = await rolled_back_tree(database_url)
    with sk.open(database_url) as engine:
        [first, *_] = engine.certify(run).as_json()["tree"]["runs"]

    async def damage(bench: Bench) -> None:
        [child, *_] = await children(bench, run)
        assert child.child_id == first["run"]
        await bench.publish(replace(LEAF, version=2))

    async with on(database_url) as bench:
        await damage(bench)
    import json

    with sk.open(database_url) as engine:
        docs = {one: [json.loads(line) for line in engine.log(one)] for one in (run, first["run"])}
    docs = {name: [line for line in lines if "to_state" in line] for name, lines in docs.items()}
    seen = TreeRun(**first)
    assert judge_tree([seen], docs, []).ok

    def wrong(change: Callable[[list[Any]], None], which: str) -> list[str]:
        lies = {name: json.loads(json.dumps(lines)) for name, lines in docs.items()}
        change(lies[which])
        return [finding.message for finding in judge_tree([seen], lies, []).findings]

    def another_end(lines: list[Any]) -> None:
        own = [line for line in lines if line["event_type"] == "run_state_transition"]
        own[-1]["to_state"] = "failed"

    def another_parent(lines: list[Any]) -> None:
        own = [line for line in lines if line["event_type"] == "run_state_transition"]
        own[0]["metadata"]["actor"] = "parent:another"

    def too_early(lines: list[Any]) -> None:
        for line in lines:
            if line["metadata"].get("event") == "child_ended":
                line["metadata"]["at"] = 1

    assert "its journal ends 'failed'" in wrong(another_end, first["run"])[0]
    assert "'parent:another' created it" in wrong(another_parent, first["run"])[0]
    assert "before it ended" in wrong(too_early, run)[0]


@pytest.mark.parametrize(
    "forget", [lambda item: item["step"] == "first", lambda item: True], ids=["one step", "all steps"]
)
async def test_a_rollback_that_leaves_a_step_out_is_found(database_url: str, forget: Callable[[Any], bool]) -> None:
    """Without the original journal the log of the rollback is consistent; the tree shows what is missing."""
    run = await rolled_back_tree(database_url)
    import json

    with sk.open(database_url) as engine:
        runs = [TreeRun(**one) for one in engine.certify(run).as_json()["tree"]["runs"]]
        docs = {
            one: [line for line in map(json.loads, engine.log(one)) if "to_state" in line]
            for one in (run, *(one.run for one in runs))
        }
    back = next(one for one in runs if one.step == "undo:inner")
    for line in docs[back.run]:
        detail = line["metadata"].get("detail") or {}
        if "continues" in detail:
            kept = [item for item in detail["continues"]["adopted"] if not forget(item)]
            detail["continues"]["adopted"] = kept
    found = judge_tree(runs, docs, []).findings
    assert found
    assert all("does not take it" in one.message and one.run == back.run for one in found)


@pytest.mark.parametrize(("limit", "state"), [(5.0, RunState.FAILED), (7.0, RunState.SUCCEEDED)])
async def test_what_children_spend_counts_against_the_budget_of_their_parent(
    database_url: str, limit: float, state: RunState
) -> None:
    leaf = flow("leaf", task("first", 0), task("second", 1, ["first"]))
    middle = flow("middle", call("inner", 0, "leaf"), task("own", 1, ["inner"]))
    top = flow("top", call("sub", 0, "middle"), task("last", 1, ["sub"]), budget=Budget(limits={"usd": limit}))

    async with on(database_url) as bench:
        for one in (leaf, middle):
            await bench.publish(one)
        run = await bench.start(top)
        for _ in range(6):
            await look_after(bench)
            for claim in await bench.claim(10):
                await bench.report(claim, Completed(output=b"1", cost=b'{"usd":2.0}'))
        await look_after(bench)
        assert await bench.state(run) is state
        if state is RunState.FAILED:
            [_, last] = await bench.store.read_steps(TENANT, run)
            assert "budget" in (last.error or "")


BOUNDED = {
    "stop": (OnExceeded.STOP, "leaf", RunState.FAILED),
    "stop, two generations down": (OnExceeded.STOP, "middle", RunState.FAILED),
    "hold": (OnExceeded.HOLD, "leaf", RunState.SUCCEEDED),
}


@pytest.mark.parametrize("case", BOUNDED)
async def test_what_is_left_of_a_budget_bounds_the_runs_below(database_url: str, case: str) -> None:
    """A step below does not open once a run above has spent its budget. One that only asks people stops no child."""
    on_exceeded, below, state = BOUNDED[case]
    leaf = flow("leaf", task("a", 0), task("b", 1, ["a"]), task("c", 2, ["b"]))
    middle = flow("middle", call("inner", 0, "leaf"))
    top = flow("top", call("sub", 0, below), budget=Budget(limits={"usd": 3.0}, on_exceeded=on_exceeded))

    async def body(bench: Bench) -> tuple[str, str]:
        for one in (leaf, middle):
            await bench.publish(one)
        run = await bench.start(top)
        for _ in range(8):
            await look_after(bench)
            for claim in await bench.claim(10):
                await bench.report(claim, Completed(output=b"1", cost=b'{"usd":2.0}'))
        await look_after(bench)
        assert await bench.state(run) is state
        last = run
        while links := await bench.store.children.read_all(TENANT, last):
            last = links[0].child_id
        [_, second, third] = await bench.store.read_steps(TENANT, last)
        assert second.state is StepState.SUCCEEDED, "it opened when 2 of 3 were spent"
        assert (third.state is StepState.SUCCEEDED) == (state is RunState.SUCCEEDED)
        if state is RunState.FAILED:
            assert third.category is Category.GOVERNANCE
            assert f"denied by the rule budget:usd of run {run}" in (third.error or "")
        return run, last

    async with on(database_url) as bench:
        run, last = await body(bench)
    with sk.open(database_url) as engine:
        assert engine.certify(run).ok
        assert engine.certify(last).ok
        assert engine.replay_policy(last).ok
        report = verify(Pack(unzipped(engine.evidence(last))))
    assert report.findings == []
    assert any(f"what run {run} above had spent" in one for one in report.unchecked) is (case != "hold")


@pytest.mark.parametrize(
    ("forged", "says"),
    [
        ({}, None),
        ({"spent": 2.0}, None),
        ({"spent": 40.0}, "after 40 were spent, and 4 are on record"),
        ({"limit": 1.0}, "with the limit 1.0, and its definition has 3.0"),
        ({"rule": "budget:tokens"}, "and its definition has None"),
        ({"run": "itself"}, "which is not above it"),
    ],
)
async def test_a_denial_by_a_run_above_is_compared_with_the_record_of_that_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forged: dict[str, Any], says: str | None
) -> None:
    """The judge of a run sees whether a budget was spent by these numbers; that of the tree whether they are true."""
    leaf = flow("leaf", task("a", 0), task("b", 1, ["a"]), task("c", 2, ["b"]))
    top = flow("top", call("sub", 0, "leaf"), budget=Budget(limits={"usd": 3.0}))
    seen: list[tuple[Any, ...]] = []
    true_judge = judge_tree

    def watch(*given: Any) -> TreeVerdict:
        seen.append(given)
        return true_judge(*given)

    url = f"sqlite:///{tmp_path}/tree.db"
    async with on(url) as bench:
        await bench.publish(leaf)
        run = await bench.start(top)
        for _ in range(6):
            await look_after(bench)
            for claim in await bench.claim(10):
                await bench.report(claim, Completed(output=b"1", cost=b'{"usd":2.0}'))
        assert await bench.state(run) is RunState.FAILED
    monkeypatch.setattr("stepkeep.evidence.collect.judge_tree", watch)
    with sk.open(url) as engine:
        assert engine.certify(run).ok
    [(runs, logs, missing, spending)] = seen
    [child] = runs
    lines = json.loads(json.dumps(logs[child.run]))
    denials = [
        verdict
        for line in lines
        for verdict in (line["metadata"].get("detail") or {}).get("policy", {}).values()
        if verdict.get("by") == "parent"
    ]
    assert [(one["spent"], one["limit"], one["run"]) for one in denials] == [(4.0, 3.0, run)]
    denials[0].update({name: child.run if value == "itself" else value for name, value in forged.items()})
    found = [one.message for one in true_judge(runs, {**logs, child.run: lines}, missing, spending).findings]
    assert bool(found) == (says is not None), found
    assert says is None or says in found[0]


@pytest.mark.parametrize("forged", [{"spent": 2.0}, {"spent": "much"}, {"spent": None, "limit": None}])
def test_a_denial_without_a_spent_budget_is_found_in_the_log_of_the_run_alone(forged: dict[str, Any]) -> None:
    verdict = {"effect": "deny", "rule": "budget:usd", "by": "parent", "run": "r", "spent": 4.0, "limit": 3.0}
    contract = read_contract(encode_definition(flow("leaf", task("a", 0))))
    assert isinstance(contract, Contract)
    about = contract.places[0].concerned(None)
    assert list(policies.check_verdict("denied", "pending", about, verdict)) == []
    [(_, said)] = policies.check_verdict("denied", "pending", about, verdict | forged)
    assert "only a spent budget" in said


async def test_no_element_starts_a_child_once_the_budget_is_spent(database_url: str) -> None:
    leaf = flow("leaf", task("a", 0))
    each = replace(call("each", 0, "leaf"), growth=Map(over="${{ input }}", max=9, in_flight=1, early_stop=False))
    top = flow("top", each, budget=Budget(limits={"usd": 3.0}))

    async with on(database_url) as bench:
        await bench.publish(leaf)
        run = await bench.start(top, b"[1,2,3,4]")
        for _ in range(8):
            await look_after(bench)
            for claim in await bench.claim(10):
                await bench.report(claim, Completed(output=b"1", cost=b'{"usd":2.0}'))
        links = sorted(await bench.store.children.read_all(TENANT, run), key=lambda link: link.no)
        assert [str(link.state) for link in links] == ["ended", "ended", "refused", "refused"]
        assert links[2].category is Category.GOVERNANCE
        assert "budget:usd" in (links[2].error or "")
        assert await bench.state(run) is RunState.FAILED
    with sk.open(database_url) as engine:
        assert engine.certify(run).ok


@pytest.mark.parametrize("how", ["succeeds", "fails below", "is cancelled", "is undone", "times out"])
async def test_a_tree_of_three_levels_is_certified_as_one_however_it_ends(database_url: str, how: str) -> None:
    top = replace(TOP, timeout=60 * SECOND, grace=5 * SECOND)

    async def body(bench: Bench) -> tuple[str, RunState]:
        run = await begun(bench, LEAF, MIDDLE, top, rounds=2)
        if how == "fails below":
            [claim] = await bench.claim(1)
            await bench.report(claim, BAD)
        elif how in ("is cancelled", "is undone"):
            await bench.cancel(run, compensate=how == "is undone")
        elif how == "times out":
            bench.store.clock_offset = 61 * SECOND
            await sweep_timers(bench.transactor)
        await finish(bench)
        return run, await bench.state(run)

    async with on(database_url) as bench:
        run, state = await body(bench)
    expected = {"succeeds": "succeeded", "fails below": "failed", "is cancelled": "cancelled"}
    assert state == expected.get(how, "rolled_back")
    with sk.open(database_url) as engine:
        certificate = engine.certify(run)
        assert certificate.ok, certificate.page()
        assert len(certificate.as_json()["tree"]["runs"]) >= 2
