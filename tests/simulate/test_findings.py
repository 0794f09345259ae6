"""`stepkeep simulate` finds what is wrong with the ways a definition may end, and stays silent about what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepkeep.definition.native.reader import load_text
from stepkeep.dialects.registry import load_file
from stepkeep.simulate.findings import Finding, Kind
from stepkeep.simulate.report import simulate

EXAMPLES = Path(__file__).parents[2] / "examples"


def found(text: str) -> list[Finding]:
    return list(simulate(load_text(text, "w.yaml")).findings)


def kinds(text: str) -> set[tuple[str, str | None]]:
    return {(finding.kind, finding.step) for finding in found(text)}


# -- the two planted traps ---------------------------------------------------------------------------------------------
def test_the_planted_stuck_path_is_found() -> None:
    report = simulate(load_file(EXAMPLES / "simulate" / "stuck.yaml"))
    assert [(one.kind, one.step) for one in report.serious] == [(Kind.STUCK, "second-look")]
    assert report.serious[0].paths == ("second-look is not decided",)
    (stuck,) = [ending for ending in report.endings if not ending.ended]
    assert (stuck.state, stuck.waits) == ("blocked", ("second-look",))


def test_the_planted_uncompensated_path_is_found() -> None:
    report = simulate(load_file(EXAMPLES / "simulate" / "uncompensated.yaml"))
    assert [(one.kind, one.step) for one in report.serious] == [
        (Kind.UNCOMPENSATED, "reserve-goods"),
        (Kind.UNCOMPENSATED, "charge-card"),
    ]
    assert all(path.startswith("book-courier ") for one in report.serious for path in one.paths)


@pytest.mark.parametrize(
    ("trap", "wrong", "right"),
    [
        ("stuck.yaml", "roles: [audit] }", "roles: [audit], deadline: 2d }"),
        ("uncompensated.yaml", "on_failure: abort # the trap", ""),
    ],
)
def test_a_mended_trap_is_clean(trap: str, wrong: str, right: str) -> None:
    text = (EXAMPLES / "simulate" / trap).read_text(encoding="utf-8")
    assert wrong in text
    assert simulate(load_text(text.replace(wrong, right), trap)).serious == ()


def test_a_rule_before_a_handler_that_fails_leaves_nothing_behind() -> None:
    text = (
        "workflow: w\ntimeout: 1h\non_failure: compensate\nsteps:\n"
        "  - {name: a, uses: a.x, undo: a.y, compensate_when: attempted, pre: ['true']}\n"
    )
    endings = {ending.path: ending for ending in simulate(load_text(text, "w.yaml")).endings}
    kept = endings["a rule before a does not hold"]
    assert (kept.state, kept.left, kept.in_doubt) == ("failed", (), ())
    assert endings["a fails for good"].state == "rolled_back"


# -- the other examples ------------------------------------------------------------------------------------------------
EXPECTED = {
    # A broken rule means that the account was opened and does not count as done: nobody takes it back.
    "onboarding": {(Kind.UNCOMPENSATED, "create-account")},
    # Seed 003 has capabilities that write and have no way back; the seed calls that a partial rollback.
    "action": {(Kind.UNCOMPENSATED, "notify")},
    # Seed 001's approvals have no deadline, and its runs no timeout.
    "run": {(Kind.STUCK, "APPROVAL")},
}


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.stem)
def test_the_examples_are_clean_or_their_findings_are_known(file: Path) -> None:
    serious = {(finding.kind, finding.step) for finding in simulate(load_file(file)).serious}
    assert serious == EXPECTED.get(file.stem, set())


# -- each kind ---------------------------------------------------------------------------------------------------------
def test_a_wait_that_only_the_runs_timeout_ends_lacks_a_deadline() -> None:
    text = "{workflow: w, timeout: 2h, steps: [{name: s, %s}]}"
    for wait in ("approval: {}", "wait: {event: e}", "uses: a.x, completion: manual"):
        assert (Kind.NO_DEADLINE, "s") in kinds(text % wait)
    for wait in ("approval: {deadline: 1h}", "wait: {event: e, deadline: 1h}"):
        assert kinds(text % wait) == set()


def test_every_wait_without_any_end_is_stuck() -> None:
    text = "{workflow: w, steps: [{name: s, %s}]}"
    for wait in ("approval: {}", "wait: {event: e}", "uses: a.x, completion: manual"):
        assert kinds(text % wait) == {(Kind.STUCK, "s"), (Kind.NO_RUN_TIMEOUT, None)}


UNDOABLE = "{name: a, uses: a.x, undo: a.y, compensate_when: attempted}"


def test_an_undo_that_the_policy_never_runs_leaves_its_effect_behind() -> None:
    text = "{workflow: w, timeout: 1h, on_failure: %s, steps: [%s, {name: b, uses: a.x}]}"
    assert (Kind.UNCOMPENSATED, "a") in kinds(text % ("abort", UNDOABLE))
    assert kinds(text % ("compensate", UNDOABLE)) == set()


def test_a_write_without_an_undo_is_left_behind_and_a_read_is_not() -> None:
    steps = "[{name: a, uses: a.x, effect: %s}, {name: b, uses: a.x}]"
    text = "{workflow: w, timeout: 1h, on_failure: compensate, steps: " + steps + "}"
    assert (Kind.UNCOMPENSATED, "a") in kinds(text % "write")
    assert (Kind.UNCOMPENSATED, "a") in kinds(text.replace(", effect: %s", ""))
    assert kinds(text % "read") == set()
    assert {kind for kind, _ in kinds(text % "irreversible")} == {Kind.IRREVERSIBLE, Kind.IN_DOUBT}


def test_what_cannot_be_taken_back_and_comes_last_is_remarked_on_only_for_interruptions() -> None:
    text = "{workflow: w, timeout: 1h, steps: [{name: a, uses: a.x}, {name: pay, uses: a.x, effect: irreversible}]}"
    (finding,) = [one for one in found(text) if one.kind is Kind.IRREVERSIBLE]
    assert not finding.serious
    assert all("while pay runs" in path for path in finding.paths)


def test_an_attempt_that_timed_out_may_have_happened() -> None:
    text = "{workflow: w, timeout: 1h, on_failure: compensate, steps: [{name: a, uses: a.x, undo: a.y}]}"
    (finding,) = [one for one in found(text) if one.kind is Kind.IN_DOUBT]
    assert "a times out" in finding.paths
    assert "a fails for good" not in finding.paths
    assert "compensate_when: attempted" in finding.hint


def test_a_broken_rule_leaves_what_the_handler_did() -> None:
    text = """
workflow: w
timeout: 1h
on_failure: compensate
steps: [{name: a, uses: a.x, undo: a.y, rules: ["${{ output.ok }}"]}]
"""
    (finding,) = [one for one in found(text) if one.kind is Kind.UNCOMPENSATED]
    assert "a breaks its rules" in finding.paths
    assert "compensate_when: attempted" in finding.hint


def test_a_hook_that_is_tried_once_is_remarked_on() -> None:
    hook = "{uses: a.y, retry: {max_attempts: 1}}"
    text = f"{{workflow: w, timeout: 1h, on_failure: compensate, steps: [{{name: a, uses: a.x, undo: {hook}}}]}}"
    assert (Kind.HOOK_WITHOUT_RETRY, "a") in kinds(text)


def test_what_somebody_wished_for_is_no_finding() -> None:
    steps = f"[{UNDOABLE}, {{name: g, approval: {{deadline: 1m}}}}]"
    text = f"{{workflow: w, timeout: 1h, on_failure: compensate, steps: {steps}}}"
    report = simulate(load_text(text, "w.yaml"))
    left = [ending for ending in report.endings if ending.left]
    assert left, "a plain cancel and a failing hook do leave things behind"
    assert report.serious == ()


def test_a_run_that_succeeds_although_a_false_condition_skipped_what_follows_is_told() -> None:
    text = """{workflow: w, timeout: 1h, input: [n], steps: [
        {name: a, uses: x, effect: read, depends_on: [], if: "${{ input.n > 1 }}"},
        {name: b, uses: x, effect: read, depends_on: [a]}, {name: c, uses: x, effect: read, depends_on: [b]}]}"""
    (told,) = [one for one in found(text) if one.kind is Kind.SKIPPED_TOO]
    assert told.message.startswith("b, c are skipped with a when the condition of a is false")
    assert not told.serious
    allowed = text.replace("depends_on: [a]", "depends_on: [{step: a, allow: [skipped]}]")
    assert Kind.SKIPPED_TOO not in {one.kind for one in found(allowed)}
