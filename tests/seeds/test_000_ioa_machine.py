"""Seed 000's machines as data: they are what its tables say, the engine refines them, and each invariant can fail."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.conformance.exploration import refined
from tests.conformance.logs import STORIES, entries_of
from tests.kernel.driver import World

from stepkeep.dialects.ioa.machine import JUDGED, RUN, STEP
from stepkeep.dialects.machine import Extension
from stepkeep.dialects.projection import Seen, ShownArrow
from stepkeep.kernel.machine.journal import RUN_ENTITY

# fmt: off
TABLE = {
    ("idle",         "queued"),
    ("queued",       "executing"),
    ("executing",    "blocked"),
    ("executing",    "completed"),
    ("executing",    "failed"),
    ("executing",    "compensating"),
    ("blocked",      "executing"),
    ("blocked",      "failed"),
    ("compensating", "completed"),
    ("compensating", "failed"),
}
# fmt: on


def pairs(arrows: Iterable[Any]) -> set[tuple[str | None, str]]:
    return {(arrow.source, arrow.target) for arrow in arrows}


def test_the_workflows_arrows_are_the_seeds_table() -> None:
    """Section 1, valid state transitions."""
    assert pairs(RUN.arrows) == TABLE | {(None, "idle")}


def test_the_steps_arrows_are_the_seeds_picture() -> None:
    """Section 2."""
    endings = {("running", "completed"), ("running", "skipped"), ("running", "failed")}
    assert pairs(STEP.arrows) == {(None, "pending"), ("pending", "running")} | endings


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("idle", "executing"),
        ("completed", "executing"),
        ("completed", "failed"),
        ("failed", "executing"),
        ("compensating", "executing"),
    ],
)
def test_what_must_not_occur_is_neither_an_arrow_nor_an_extension(source: str, target: str) -> None:
    """Section 1, invalid transitions."""
    assert not RUN.legal(source, target)
    assert RUN.extended(source, target) is None
    assert any(rule.source == source and rule.target in ("*", target) for rule in RUN.forbidden)


# -- refinement ------------------------------------------------------------------------------------------------------
def test_whatever_the_engine_does_is_an_arrow_a_stutter_or_a_listed_extension() -> None:
    found = refined(JUDGED)
    assert [str(breach) for breach in found.breaches] == []


def test_no_extension_too_many_is_listed() -> None:
    idle_talk = Extension("executing", "idle", "never happens")
    found = refined(replace(JUDGED, run=replace(RUN, extensions=(*RUN.extensions, idle_talk))))
    assert [breach.kind for breach in found.breaches] == ["unproduced"]


# -- the projection --------------------------------------------------------------------------------------------------
def seen_in(world: World) -> Iterator[Seen]:
    """The hops of a run on the kernel."""
    for entry in entries_of(world):
        for hop in entry.hops:
            if hop.no == RUN_ENTITY:
                yield Seen("run", "r", hop.source, hop.trigger, hop.target)
            else:
                planned = world.plan.at(hop.no)
                yield Seen("step", planned.name, hop.source, hop.trigger, hop.target, str(planned.phase))


@pytest.mark.parametrize("story", STORIES)
def test_runs_of_any_format_can_be_told_in_these_words(story: str) -> None:
    projection = JUDGED.projection()
    shown = [arrow for seen in seen_in(STORIES[story]()) for arrow in projection.feed(seen)]
    assert shown
    for arrow in shown:
        view = RUN if arrow.kind == "run" else STEP
        assert view.legal(arrow.source, arrow.target) or view.extended(arrow.source, arrow.target), arrow


def feed(*hops: Seen) -> list[ShownArrow]:
    projection = JUDGED.projection()
    return [arrow for hop in hops for arrow in projection.feed(hop)]


def test_hooks_are_not_steps_of_the_workflow() -> None:
    [shown] = feed(Seen("step", "undo:a", None, "planned", "pending", "undo"))
    assert (shown.kind, shown.noun) == ("undo", "compensation")


def test_the_machines_can_be_judged_by_without_front_end_or_kernel() -> None:
    code = (
        "import sys, stepkeep.dialects.ioa.machine\n"
        "heavy = ('pydantic', 'stepkeep.kernel', 'stepkeep.definition')\n"
        "bad = [name for name in sys.modules if name.startswith(heavy)]\n"
        "sys.exit(' '.join(bad) or 0)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


# -- invariants ------------------------------------------------------------------------------------------------------
def line(noun: str, source: str | None, target: str, step: str = "", **metadata: Any) -> dict[str, Any]:
    said = {"step": step, **metadata} if step else metadata
    entity = f"r/{step}" if step else "r"
    return {
        "event_type": f"{noun}_state_transition",
        "entity_id": entity,
        "from_state": source,
        "to_state": target,
        "metadata": said,
    }


def flow(source: str | None, target: str, **metadata: Any) -> dict[str, Any]:
    return line("workflow", source, target, **metadata)


def task(name: str, source: str | None, target: str, **metadata: Any) -> dict[str, Any]:
    return line("step", source, target, name, **metadata)


def born(name: str, *after: str, on_failure: str = "abort") -> dict[str, Any]:
    return task(name, None, "pending", depends_on=list(after), on_failure=on_failure)


BEGUN = [flow(None, "idle"), born("a"), born("b", "a"), flow("idle", "queued"), flow("queued", "executing")]
RAN = [task("a", "pending", "running"), task("a", "running", "completed"), task("b", "pending", "running")]
GOOD = [*BEGUN, *RAN, task("b", "running", "completed"), flow("executing", "completed")]
FAILED = [*BEGUN, *RAN, task("b", "running", "failed")]

VIOLATIONS = {
    "nothing-after-the-end": [*GOOD, flow("completed", "executing")],
    "steps-start-while-it-executes": [*BEGUN[:-1], task("a", "pending", "running")],
    "dependencies-first": [*BEGUN, task("b", "pending", "running")],
    "none-starts-after-a-failure": [
        *BEGUN,
        born("c"),
        *RAN,
        task("b", "running", "failed"),
        task("c", "pending", "running"),
    ],
    "skip-is-asked-for": [*BEGUN, *RAN, task("b", "running", "skipped")],
    "completed-means-finished": [*FAILED, flow("executing", "completed")],
    "failed-has-a-reason": [*BEGUN, *RAN, task("b", "running", "completed"), flow("executing", "failed")],
    "blocked-on-a-step": [*BEGUN, flow("executing", "blocked")],
    "blocked-by-an-open-gate": [
        *BEGUN,
        born("g"),
        task("g", "pending", "running", because="gate_opened"),
        task("a", "pending", "running", because="claimed"),
    ],
    "attempts-are-bounded": [
        *BEGUN,
        task("c", None, "pending", depends_on=[], max_attempts=2),
        task("c", "pending", "running", attempt=3),
    ],
    "decided-in-time": [
        *BEGUN,
        born("g"),
        task("g", "pending", "running", because="gate_opened", seq=2, at=1, due_at=9),
        task("g", "running", "completed", because="approved", event="gate_decided", seq=3, at=9),
    ],
    "blocked-until-its-timeout": [
        *BEGUN,
        born("w"),
        task("w", "pending", "running", because="wait_opened", seq=2, at=1, due_at=9),
        task("w", "running", "failed", because="deadline_passed", seq=3, at=8),
    ],
    "only-completed-is-undone": [
        *BEGUN,
        task("a", "pending", "cancelled"),
        task("b", "pending", "cancelled"),
        flow("executing", "compensating"),
    ],
    "every-step-is-settled": [*BEGUN, task("a", "pending", "running"), flow("executing", "failed", category="timeout")],
}


def found_in(lines: list[dict[str, Any]]) -> dict[str, list[str]]:
    """What each invariant has to say about these lines."""
    found: dict[str, list[str]] = {}
    for invariant in JUDGED.invariants:
        said: list[str] = []
        take = invariant.check(said.append)
        for one in lines:
            take(one)
        if said:
            found[invariant.name] = said
    return found


def test_a_good_run_breaks_none() -> None:
    assert found_in(GOOD) == {}
    assert found_in([*FAILED, flow("executing", "failed")]) == {}
    assert found_in([*FAILED, flow("executing", "compensating"), flow("compensating", "completed")]) == {}


@pytest.mark.parametrize("name", [invariant.name for invariant in JUDGED.invariants])
def test_each_invariant_finds_what_breaks_it(name: str) -> None:
    assert name in found_in(VIOLATIONS[name])


def test_a_step_that_fails_under_skip_must_be_skipped() -> None:
    lines = [*BEGUN[:1], born("a", on_failure="skip"), *BEGUN[3:], *RAN[:1], task("a", "running", "failed")]
    assert "skip-is-asked-for" in found_in(lines)


def test_a_person_may_skip_a_step_whatever_its_policy_says() -> None:
    skipped = task("b", "running", "skipped", because="operator_skipped")
    assert found_in([*BEGUN, *RAN, skipped, flow("executing", "completed")]) == {}
    assert "skip-is-asked-for" in found_in([*BEGUN, *RAN, skipped | {"metadata": RAN[-1]["metadata"]}])


def test_a_workflow_that_timed_out_needs_no_failed_step() -> None:
    """Section 3.4."""
    cancelled = [task(name, "pending", "cancelled") for name in "ab"]
    assert found_in([*BEGUN, *cancelled, flow("executing", "failed", category="timeout")]) == {}


def test_each_default_and_invariant_says_where_it_comes_from() -> None:
    for one in (*JUDGED.invariants, *JUDGED.defaults):
        assert one.cites.startswith(("000 §", "design §")), one


def test_the_documentation_tells_every_arrow_extension_default_and_invariant() -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "dialects" / "ioa.md").read_text(encoding="utf-8")
    rows = [
        *(f"| {one.source or '(new)'} | {one.target} | {one.trigger} | {one.cites} |" for one in RUN.arrows),
        *(f"| {one.source or '(new)'} | {one.target} | {one.trigger} | {one.cites} |" for one in STEP.arrows),
        *(f"| {one.question} | {one.answer} | {one.cites} |" for one in JUDGED.defaults),
        *(f"| {one.name} | {one.cites} |" for one in JUDGED.invariants),
    ]
    assert [row for row in rows if row not in page] == []
