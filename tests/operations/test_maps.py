"""Maps and loops on both databases, with real workers, and what the judge says of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.conformance.verify import verify_lines
from stepkeep.conformance.words.replay import replay_lines
from stepkeep.definition.native.reader import check_text
from stepkeep.dialects.registry import judged
from stepkeep.kernel.definition import Definition, Handler, Loop, Map, StepDefinition
from stepkeep.kernel.machine.outcomes import Completed
from stepkeep.kernel.machine.states import RunState, StepState
from stepkeep.operations.logs.lines import encode_line
from stepkeep.operations.logs.log import canonical_machines, lines_of
from stepkeep.operations.pipeline.expire import sweep
from stepkeep.operations.runs.diagnosis import explain
from stepkeep.operations.runs.views import describe_run
from tests.workbench import SECOND, TENANT, on

undone: list[int] = []


def map_element(n: int, bad: list[int]) -> dict[str, int]:
    if n in bad:
        raise sk.fail(f"{n} is bad")
    return {"n": n}


def undo_map_element(n: int) -> None:
    undone.append(n)


def loop_element(last: dict[str, Any] | None, index: int) -> dict[str, Any]:
    return {"turn": index, "sum": (last or {"sum": 0})["sum"] + index, "done": index == 2}


def mapping(name: str, *, on_failure: Any = "abort", **options: Any) -> sk.Workflow:
    flow = sk.Workflow(name, on_failure=on_failure)
    over = {"over": flow.input["items"], "in_flight": 3, **options}
    flow.step("each", map_element, inputs={"n": flow.item, "bad": flow.input.bad}, map=over, undo=undo_map_element)
    return flow


@pytest.mark.parametrize(
    ("flow", "bad", "state", "expected"),
    [
        (mapping("all"), [], "succeeded", [{"n": 0}, {"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}]),
        (mapping("most", tolerate="20%"), [3], "succeeded", [{"n": 0}, {"n": 1}, {"n": 2}, None, {"n": 4}]),
        (mapping("early"), [1], "failed", None),
        (mapping("late", early_stop=False), [1], "failed", None),
        (mapping("undone", on_failure="compensate"), [4], "rolled_back", None),
    ],
)
def test_a_map_ends_as_documented_and_is_certified(
    database_url: str, flow: sk.Workflow, bad: list[int], state: str, expected: Any
) -> None:
    undone.clear()
    with sk.Engine(database_url) as engine:
        result = engine.run(flow, {"items": list(range(5)), "bad": bad}, check=False)
        assert (result.state, result.output) == (state, expected)
        assert sorted(undone) == ([0, 1, 2, 3] if state == "rolled_back" else [])
        certificate = engine.certify(result.id)
        assert certificate.ok, certificate


@pytest.mark.parametrize(
    ("repeat", "state"),
    [
        ({"until": "${{ last.done }}", "max": 5}, "succeeded"),
        ({"while": "${{ index < 3 }}", "max": 5}, "succeeded"),
        ({"until": "${{ last.turn > 7 }}", "max": 2}, "failed"),
        ({"until": "${{ last.done }}", "max": 5, "pause": "10ms"}, "succeeded"),
    ],
)
def test_a_loop_hands_each_element_the_output_of_the_one_before(
    database_url: str, repeat: dict[str, Any], state: str
) -> None:
    flow = sk.Workflow("loop")
    flow.step("poll", loop_element, inputs={"last": flow.last, "index": flow.index}, repeat=repeat)
    with sk.Engine(database_url) as engine:
        result = engine.run(flow, {}, check=False)
        assert result.state == state
        assert result.output == (None if state == "failed" else {"turn": 2, "sum": 3, "done": True})
        certificate = engine.certify(result.id)
        assert certificate.ok, certificate


def listed(count: int, **growth: Any) -> Definition:
    step = StepDefinition(
        name="each", order=0, executor=Handler(name="each"), growth=Map(over="${{ input.list }}", **growth)
    )
    return Definition(name="listed", version=1, steps=(step,))


async def test_a_decision_about_one_element_does_not_load_the_others(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(listed(200, in_flight=5), json.dumps({"list": list(range(200))}).encode())
        assert len(await bench.step_states(run_id)) == 6
        assert await bench.work_off(5) == 200
        assert await bench.state(run_id) is RunState.SUCCEEDED
        view = await describe_run(bench.transactor, run_id, tenant=TENANT)
        assert view["run"]["output"] == [{"ok": True}] * 200


async def test_an_owner_that_waits_says_how_far_its_elements_are(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(listed(3, in_flight=2), b'{"list": [1, 2, 3]}')
        [first, _] = await bench.claim(2)
        await bench.report(first, Completed(output=b"1"))
        view = await describe_run(bench.transactor, run_id, tenant=TENANT)
        [waits] = view["run"]["waiting_for"]
        assert (waits["elements"], waits["settled"], waits["failed"]) == (3, 1, 0)
        assert [step["kind"] for step in view["steps"]][:2] == ["map", "python"]
        told = await explain(bench.transactor, run_id, "each", tenant=TENANT)
        assert "1 of 3 have settled" in " ".join(cause.sentence for cause in told.causes)


async def test_a_sweep_ends_the_pause_of_a_loop(database_url: str) -> None:
    async with on(database_url) as bench:
        loop = Loop(max=3, until="last.ok == false", pause=60 * SECOND)
        step = StepDefinition(name="poll", order=0, executor=Handler(name="poll"), growth=loop)
        run_id = await bench.start(Definition(name="loop", version=1, steps=(step,)))
        assert await bench.work_off() == 1
        assert await bench.state(run_id) is RunState.BLOCKED
        await sweep(bench.transactor)
        assert await bench.claim(1) == []
        bench.store.clock_offset = 61 * SECOND
        await sweep(bench.transactor)
        assert await bench.step_states(run_id) == [
            StepState.AWAITING_CHILDREN, StepState.SUCCEEDED, StepState.READY,
        ]  # fmt: skip


# -- the judge ---------------------------------------------------------------------------------------------------------
async def told_lines(tmp_path: Path, dialect: str | None = None) -> list[dict[str, Any]]:
    """The log of a map over five items of which one fails, tolerated."""
    lines: list[dict[str, Any]] = []

    async with on(f"sqlite:///{tmp_path / 'log.db'}") as bench:
        run_id = await bench.start(listed(4, in_flight=2, max=4), b'{"list": [1, 2, 3, 4]}')
        await bench.work_off(1)
        [whole] = await bench.store.read_whole(TENANT, [run_id])
        plan = await bench.publish(listed(4, in_flight=2, max=4))
        lines.extend(lines_of(whole, plan, dialect))
    return lines


def forged(lines: list[dict[str, Any]], change: Any) -> list[str]:
    """The findings after a change of the lines, whose hashes are not looked at."""
    changed = json.loads(json.dumps(lines))
    change(changed)
    report = verify_lines(map(encode_line, changed), canonical_machines())
    return sorted({finding.message for finding in report.findings if finding.code not in ("hash", "head", "gap")})


def set_count(count: int) -> Any:
    def change(lines: list[dict[str, Any]]) -> None:
        for line in lines:
            grown = (line.get("metadata", {}).get("detail") or {}).get("plan_grown")
            if grown is not None:
                grown["each"]["count"] = count

    return change


@pytest.mark.parametrize("dialect", [None, "ioa", "run", "linear", "action", "workstream"])
async def test_the_true_log_is_right_in_every_dialect(tmp_path: Path, dialect: str | None) -> None:
    lines = [encode_line(line) for line in await told_lines(tmp_path, dialect)]
    report = verify_lines(lines, canonical_machines()) if dialect is None else replay_lines(lines, judged(dialect))
    assert report.findings == ()


@pytest.mark.parametrize(
    ("count", "says"),
    [(3, "the definition allows no more now"), (5, "0 to 4"), (-1, "0 to 4")],
)
async def test_a_log_that_lies_about_the_number_of_elements_is_found(tmp_path: Path, count: int, says: str) -> None:
    assert any(says in said for said in forged(await told_lines(tmp_path), set_count(count)))


# -- definitions -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("step", "says"),
    [
        ("map: {over: 3}", "must be text"),
        ("map: files", "`over` is an expression"),
        ("map: {over: '${{ input.f }}', in_flight: 0}", "at least 1"),
        ("map: {over: '${{ input.f }}', tolerate: 101%}", "a share such as 10%"),
        ("map: {over: '${{ input.f }}', max: 10001}", "at most 10000"),
        ("repeat: {max: 3}", "either `until` or `while`"),
        ("repeat: {until: 'true', while: 'true', max: 3}", "either `until` or `while`"),
        ("repeat: {until: 'true'}", "max"),
        ("repeat: {until: '${{ item }}', max: 3}", "There is no `item` here"),
        ("map: '${{ input.f }}'\n    repeat: {until: 'true', max: 3}", "both `map` and `repeat`"),
        ("map: '${{ input.f }}'\n    completion: manual", "means nothing for the elements"),
        ("with: {a: '${{ item }}'}", "There is no `item` here"),
    ],
)
def test_a_wrong_map_or_loop_is_refused_with_its_place(step: str, says: str) -> None:
    text = f"workflow: w\nsteps:\n  - name: a\n    uses: x.y\n    {step}\n"
    report = check_text(text, "w.yaml")
    assert report.definition is None
    assert any(says in problem.message + problem.hint for problem in report.problems), report.problems
