"""Filters of waits, and waits for several messages, as people write them and as they run."""

from __future__ import annotations

import pytest

import stepkeep as sk
from stepkeep.definition.native.reader import check_text, load_text
from stepkeep.kernel.definition import Wait


def text_of(wait: str) -> str:
    return f"workflow: w\nsteps:\n  - name: a\n    wait: {wait}\n"


def test_a_filter_a_count_and_an_until_are_part_of_the_definition() -> None:
    [step] = load_text(text_of('{event: paid, if: "message.amount > 100", count: 3, deadline: 1h}'), "w.yaml").steps
    assert step.wait == Wait(event="paid", deadline=3_600_000_000, accepts="message.amount > 100", count=3)
    [step] = load_text(text_of('{event: part, until: "size(messages) == input.parts"}'), "w.yaml").steps
    assert step.wait == Wait(event="part", enough="size(messages) == input.parts")


@pytest.mark.parametrize(
    ("wait", "said"),
    [
        ('{event: paid, if: "message.amount >"}', "ends too early"),
        ('{event: paid, if: "amount > 100"}', "amount"),
        ('{event: paid, if: "steps.a.output > 1"}', "steps"),
        ('{event: paid, if: "1 + 1"}', "not to true or false"),
        ('{event: paid, until: "message.last"}', "message"),
        ('{event: paid, count: 2, until: "true"}', "either `count` or `until`"),
        ("{event: paid, count: 0}", "count"),
        ("{event: paid, count: 101}", "count"),
        ("{event: paid, count: two}", "count"),
        ("{event: paid, if: 7}", "if"),
    ],
)
def test_what_no_wait_can_mean_is_refused_where_it_stands(wait: str, said: str) -> None:
    report = check_text(text_of(wait), "w.yaml")
    assert report.definition is None
    assert any(said in str(problem) for problem in report.problems), [str(problem) for problem in report.problems]
    assert all(problem.line == 4 for problem in report.problems)


def test_python_writes_the_same_definition() -> None:
    workflow = sk.Workflow("w")
    workflow.wait("a", "paid", where="message.amount > 100", count=3)
    written = load_text(text_of('{event: paid, if: "message.amount > 100", count: 3}'), "w.yaml")
    assert workflow.definition().steps == written.steps


def test_a_run_takes_the_messages_that_its_wait_accepts(database_url: str) -> None:
    workflow = sk.Workflow("votes")
    votes = workflow.wait("votes", "vote", where="message.yes || message.no", count=2)
    workflow.wait("seal", "sealed", where="message.by == input.owner", after=votes)
    with sk.open(database_url) as engine:
        started = engine.start(workflow, {"owner": "ann"}, business_key="ballot")
        sent = [
            engine.send(key="ballot", name="vote", payload=one)["consumed_by"]
            for one in ({"yes": True}, {"maybe": True}, {"yes": False, "no": True})
        ]
        assert sent == ["votes", None, "votes"]
        assert engine.send(key="ballot", name="sealed", payload={"by": "bea"})["consumed_by"] is None
        assert engine.send(key="ballot", name="sealed", payload={"by": "ann"})["consumed_by"] == "seal"
        result = engine.result(started.run_id)
        assert result.state == "succeeded"
        shown = {step["name"]: step["output"] for step in engine.show(started.run_id)["steps"]}
        assert shown == {"votes": [{"yes": True}, {"yes": False, "no": True}], "seal": {"by": "ann"}}
        assert engine.certify(started.run_id).ok
