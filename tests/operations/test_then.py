"""Steps that handlers add, on both databases, with real workers: what they come to, and what the judge says of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import stepkeep as sk
from tests.operations.test_flows import run
from tests.operations.then_process import trip
from tests.suites import short_and_all
from tests.worker.bed import PAST_THE_LEASE_US

undone: list[str] = []


@sk.step("then.note")
def note(text: str) -> dict[str, str]:
    return {"text": text}


@sk.step("then.forget")
def forget(text: str) -> None:
    undone.append(text)


@sk.step("then.break")
def broken() -> None:
    raise sk.fail("it broke", category="conflict")


def planner(answer: Any, **head: Any) -> sk.Workflow:
    """A workflow whose only step returns this."""
    made = sk.Workflow("planner", **head)
    made.step("plan", sk.step(f"then.plan{len(ANSWERS)}")(lambda: answer), then={"max_steps": 3})
    ANSWERS.append(answer)
    return made


ANSWERS: list[Any] = []


def test_a_handler_adds_steps_that_read_each_other(database_url: str) -> None:
    odd = "no ${{ steps.b.output }} expression"
    answer = sk.then(
        {"name": "a", "uses": note, "with": {"text": odd}, "depends_on": []},
        {"name": "b", "uses": note, "with": {"text": sk.output_of("a").text}},
        {"name": "echo", "command": ["echo", "-n", "done"], "depends_on": ["b"]},
        output={"n": 1},
    )
    result = run(database_url, planner(answer))
    assert result.output["output"] == {"n": 1}
    assert result.output["steps"]["b"] == {"text": odd}
    assert result.output["steps"]["echo"]["stdout"] == "done"
    with sk.Engine(database_url) as engine:
        steps = engine.show(result.id)["steps"]
        assert [(one["name"], one["call"]) for one in steps][1:] == [
            ("plan[0]", "a"),
            ("plan[1]", "b"),
            ("plan[2]", "echo"),
        ]
        assert engine.explain(result.id, "plan[1]")


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([{"name": "a", "uses": "then.note", "retrys": 3}], "There is no key `retrys` here. Did you mean `retry`?"),
        ([{"name": "a", "uses": "then.note", "depends_on": ["b"]}], "There is no step `b` to depend on."),
        ([{"name": "a", "workflow": "other"}], "`workflow` means nothing for a step that a handler adds."),
        ([{"name": "a", "uses": "then.note", "on_failure": "abort"}], "is `skip`, or is left out"),
        ([{"name": "a", "http": {"url": sk.secret("KEY")}}], "reads no secrets"),
        ([{"name": str(place), "uses": "then.note"} for place in range(4)], "it adds 4 steps"),
        ([{"uses": "then.note", "depends_on": []}], "`name` is missing"),
        ([{"name": "a", "uses": "then.note", "depends_on": 5}], "`depends_on` must be a list, not a whole number"),
        ([{"name": "a", "uses": "then.note", "depends_on": [{"step": [1]}]}], "`step` must be text, not a list"),
        (["a"], "then: step 0 is a str"),
        ([{"name": "a", "uses": print}], "print is no handler"),
    ],
)
def test_a_list_that_is_wrong_fails_the_step_as_validation(database_url: str, steps: Any, said: str) -> None:
    with sk.Engine(database_url) as engine:
        result = engine.run(planner(sk.then(*steps)), {}, check=False)
        [step] = engine.show(result.id)["steps"]
        assert (result.state, step["category"], step["attempts"]) == ("failed", "validation", 1)
        assert said in step["error"]
        assert engine.certify(result.id).ok


def test_a_step_without_then_cannot_add_steps(database_url: str) -> None:
    made = sk.Workflow("plain")
    made.step("plan", sk.step("then.plain")(lambda: sk.then({"name": "a", "uses": note})))
    result = run(database_url, made)
    assert "declare `then: {max_steps: N}`" in str(result.error)


def test_added_steps_are_undone_and_one_may_be_skipped(database_url: str) -> None:
    undone.clear()
    answer = sk.then(
        {"name": "a", "uses": note, "with": {"text": "a"}, "undo": forget},
        {"name": "b", "uses": broken, "with": None, "on_failure": "skip"},
        {"name": "c", "uses": broken, "with": None},
    )
    result = run(database_url, planner(answer, on_failure="compensate"))
    assert (result.state, undone) == ("rolled_back", ["a"])
    with sk.Engine(database_url) as engine:
        states = [one["state"] for one in engine.show(result.id)["steps"]]
    assert states == ["failed", "succeeded", "skipped", "failed", "succeeded"]


def test_the_agent_of_the_example_plans_until_it_publishes(database_url: str) -> None:
    folder = Path(__file__).parents[2] / "examples"
    given = [sys.executable, "-c", f"import agent_plan; print(agent_plan.main({database_url!r}, ['tea', 'cup']))"]
    ended = subprocess.run(given, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "cup is old; cup is loved; tea is old; tea is loved" in ended.stdout


@pytest.mark.parametrize("commits", short_and_all([2, 3], range(1, 6)))
def test_added_steps_survive_the_death_of_their_worker_after_a_commit(
    database_url: str, tmp_path: Path, commits: int
) -> None:
    ledger = tmp_path / "ledger"
    with sk.Engine(database_url) as engine:
        started = engine.start(trip, {"city": "Graz"})
        program, ended = Path(__file__).with_name("then_process.py"), []
        path = {**os.environ, "PYTHONPATH": str(program.parents[2])}
        # The clock of the second one is past the leases of the first.
        for left, ahead in ((commits, 0), (0, PAST_THE_LEASE_US)):
            given = [sys.executable, str(program), database_url, started.run_id, str(left), str(ledger), str(ahead)]
            ended.append(subprocess.run(given, timeout=60, check=False, env=path).returncode)
        assert ended == [-9, 0]
        result = engine.result(started.run_id)
        assert result.output["steps"]["walk"] == {"place": "a walk in Graz"}
        assert engine.certify(started.run_id).ok
    # What was in flight when the worker died is done again, under the same key.
    done = sorted(line.split(" ", 1)[1] for line in set(ledger.read_text().splitlines()))
    assert done == ["book Graz", "book a walk in Graz", "more Graz", "plan"]


def test_the_rollback_of_a_finished_child_undoes_the_steps_that_were_added_in_it(database_url: str) -> None:
    undone.clear()
    steps = sk.then({"name": "a", "uses": note, "with": {"text": "in a child"}, "undo": forget})
    child = planner(steps)
    parent = sk.Workflow("parent-of-planner", on_failure="compensate")
    parent.workflow("make", "planner")
    parent.step("fail", broken, inputs={})
    with sk.Engine(database_url) as engine:
        engine.publish(child)
        result = engine.run(parent, {}, check=False)
        assert (result.state, undone) == ("rolled_back", ["in a child"])
        certificate = engine.certify(result.id)
        assert certificate.ok, certificate
