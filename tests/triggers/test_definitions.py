"""Triggers in definitions: what is read, what is refused, and what publishing a version does with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.definition.native.reader import CheckReport
from stepkeep.definition.text.document import parse_document
from stepkeep.dialects.registry import examine
from stepkeep.kernel.triggers import Fold, Gap, Keep, Overlap

STEPS = "steps:\n  - {name: a, command: [echo, hi]}\n"


def check_text(text: str, name: str) -> CheckReport:
    return examine(parse_document(text, file=name, syntax="yaml"))


def problems(written: str) -> list[str]:
    report = check_text(f"workflow: w\ntriggers:\n{written}{STEPS}", "w.yaml")
    return [str(problem) for problem in report.problems]


def triggers(written: str) -> tuple[Any, ...]:
    report = check_text(f"workflow: w\ntriggers:\n{written}{STEPS}", "w.yaml")
    assert report.definition is not None, report.problems
    return report.definition.declared_triggers


def test_schedules_events_and_endings_are_read() -> None:
    nightly, often, risky, after = triggers(
        "  - {schedule: '30 2 * * *', zone: Europe/Zurich, overlap: queue, catch_up: {keep: all, spread: 10s}}\n"
        "  - {every: 15m, jitter: 1m, catch_up: none}\n"
        "  - {name: risky, event: risk.*, condition: riskScore >= 0.7, with: {c: '${{ payload.customer }}'}}\n"
        "  - {ended: import}\n"
    )
    assert (nightly.name, often.name, risky.name, after.name) == ("schedule", "schedule-2", "risky", "ended")
    assert (nightly.schedule.gap, nightly.schedule.fold) == (Gap.SHIFT, Fold.FIRST)
    assert (nightly.overlap, nightly.catch_up.keep, nightly.catch_up.spread) == (Overlap.QUEUE, Keep.ALL, 10_000_000)
    assert (often.schedule.every, often.catch_up.keep) == (900_000_000, Keep.NONE)
    assert (risky.event, risky.overlap, risky.inputs) == ("risk.*", Overlap.ALLOW, {"c": "${{ payload.customer }}"})
    assert (after.ended.workflow, len(after.ended.states)) == ("import", 4)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("  - {schedule: '61 * * * *'}\n", "w.yaml:3:16: `61` is no minute"),
        ("  - {schedule: '@daily', zone: Europe/Zurych}\n", "There is no time zone `Europe/Zurych`"),
        ("  - {every: 1h, zone: Europe/Zurich}\n", "counts elapsed time"),
        ("  - {every: 1h, event: x}\n", "has every and event"),
        ("  - {name: x}\n", "has none"),
        ("  - {event: x, jitter: 1m}\n", "`jitter` means nothing without a schedule"),
        ("  - {schedule: '@daily', condition: a > 1}\n", "A schedule has no condition"),
        ("  - {event: x, condition: severity is critical}\n", "is not expected here"),
        ("  - {event: x, with: {a: '${{ steps.a.output }}'}}\n", "There is no `steps`"),
        ("  - {schedule: '@daily'}\n  - {name: schedule, every: 1h}\n", "Two triggers are named `schedule`"),
        ("  - {schedule: '@daily', overlap: often}\n", "overlap"),
        ("  - {schedule: '@daily', sometimes: 1}\n", "sometimes"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_position(written: str, said: str) -> None:
    assert any(said in problem for problem in problems(written)), problems(written)


IOA = """
apiVersion: ioa.dev/v0.2
kind: Workflow
metadata: {{name: churn}}
spec:
  description: d
  domainsInvolved: [growth]
  timeout: 1h
  trigger: {trigger}
  steps:
    - {{name: a, agent: b, action: c, timeout: 1m}}
"""


@pytest.mark.parametrize(
    ("trigger", "kinds"),
    [
        ("{event: growth.churn-signal, condition: riskScore >= 0.7}", ["event"]),
        ("{event: x, condition: \"payload.riskLevel >= 'high'\", schedule: '0 9 * * MON'}", ["event", "schedule"]),
        ("{schedule: 6h}", ["schedule"]),
    ],
)
def test_the_trigger_of_seed_000_is_read(trigger: str, kinds: list[str]) -> None:
    report = check_text(IOA.format(trigger=trigger), "w.yaml")
    assert report.definition is not None, report.problems
    assert [one.kind.value for one in report.definition.declared_triggers] == kinds


@pytest.mark.parametrize(
    ("trigger", "said"),
    [
        ("{schedule: every monday}", "five fields"),
        ("{event: x, condition: risk is high}", "is not expected here"),
        ("{condition: riskScore >= 0.7}", "A condition is about an event"),
    ],
)
def test_what_seed_000_leaves_without_a_grammar_is_refused_with_the_reason(trigger: str, said: str) -> None:
    report = check_text(IOA.format(trigger=trigger), "w.yaml")
    assert any(said in str(problem) for problem in report.problems), report.problems


def version(number: int, *given: dict[str, Any]) -> sk.Workflow:
    flow = sk.Workflow("report", version=number, triggers=given)
    flow.command("a", ["echo", "hi"])
    return flow


def test_publishing_installs_replaces_and_removes_triggers_and_an_older_version_changes_nothing(
    tmp_path: Path,
) -> None:
    nightly, hourly = {"name": "nightly", "schedule": "30 2 * * *"}, {"name": "hourly", "every": "1h"}

    def state() -> dict[str, tuple[int, str, str]]:
        listed = engine.triggers.list()["triggers"]
        return {one["trigger"]: (one["version"], one["state"], one["next_at"]) for one in listed}

    with sk.open(f"sqlite:///{tmp_path}/s.db") as engine:
        engine.publish(version(1, nightly, hourly))
        first = state()
        assert {name: one[0] for name, one in first.items()} == {"report/nightly": 1, "report/hourly": 1}
        engine.triggers.pause("report/nightly")
        engine.publish(version(2, nightly))
        assert {name: one[:2] for name, one in state().items()} == {"report/nightly": (2, "paused")}
        engine.publish(version(1, nightly, hourly))
    with sk.open(f"sqlite:///{tmp_path}/s.db") as engine:
        engine.publish(version(1, nightly, hourly))
        assert {name: one[:2] for name, one in state().items()} == {"report/nightly": (2, "paused")}
        with pytest.raises(sk.Conflict, match="belongs to version 2 of report"):
            engine.triggers.remove("report/nightly")
        engine.publish(version(3, hourly))
        assert {name: one[:2] for name, one in state().items()} == {"report/hourly": (3, "active")}


def test_a_run_of_seed_000_says_what_started_it(tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(IOA.format(trigger="{event: growth.churn, condition: riskScore >= 0.7}"))
    with sk.open(f"sqlite:///{tmp_path}/s.db") as engine:
        plan = engine.publish(sk.load_file(file))
        [fired] = engine.triggers.emit("growth.churn", {"riskScore": 1})["firings"]
        by_hand = engine.start(plan, {"riskScore": 1}).run_id
        for run_id, said in ((fired["run_id"], "churn/event"), (by_hand, "manual")):
            shown = engine.show(run_id, as_="ioa")
            [started] = [one for one in shown["events"] if one["event"] == "workflow_started"]
            assert started["payload"]["trigger"] == said
