"""Seed 000 section 6: advice on definitions that are correct and may still hurt."""

from stepkeep.definition.native.reader import check_text
from stepkeep.definition.python.handlers import Registry, step

CALM = "workflow: demo\ntimeout: 1h\nsteps:\n"


def warnings(text: str, handlers: Registry | None = None) -> list[str]:
    report = check_text(text, "test.yaml", handlers)
    assert report.problems == ()
    return [str(warning) for warning in report.warnings]


def test_a_calm_workflow_has_no_warnings() -> None:
    assert warnings(CALM + "  - { name: a, uses: x, timeout: 5s }") == []


def test_guideline_1_a_run_without_timeout() -> None:
    assert warnings("workflow: demo\nsteps: [{ name: a, uses: x, timeout: 5s }]") == [
        (
            "test.yaml:1:1: The workflow has no `timeout`: a run that is stuck stays so forever. "
            "Add one, for example `timeout: 1h`."
        )
    ]


def test_guideline_1_a_step_without_timeout() -> None:
    assert warnings(CALM + "  - { name: a, uses: x }") == [
        (
            "test.yaml:4:13: Step `a` has no `timeout` of its own; each attempt may take 5m. "
            "Add the time it should need at most."
        )
    ]


def test_guideline_1_a_timeout_said_by_the_handler_is_one() -> None:
    registry = Registry()
    step("x", timeout="5s", registry=registry)(lambda: None)
    assert warnings(CALM + "  - { name: a, uses: x }", registry) == []


def test_guideline_1_waits_without_a_deadline() -> None:
    found = warnings(
        CALM + "  - { name: a, approval: Go? }\n  - { name: b, wait: paid }\n"
        "  - { name: c, uses: x, timeout: 1s, completion: manual }"
    )
    assert [line.split(": ", 1)[1].split(":")[0] for line in found] == [
        "`approval` of step `a` has no `deadline`",
        "`wait` of step `b` has no `deadline`",
        "The manual completion of step `c` has no `deadline`",
    ]


def test_guideline_3_a_write_without_undo() -> None:
    assert warnings(CALM + "  - { name: a, uses: x, timeout: 1s, effect: write }") == [
        (
            "test.yaml:4:38: Step `a` changes something and has no `undo`: a rollback stays partial. "
            "Add one, or say `effect: irreversible`."
        )
    ]


def test_guideline_3_a_workflow_that_compensates_asks_for_an_undo_or_an_effect() -> None:
    text = CALM.replace("timeout", "on_failure: compensate\ntimeout") + (
        "  - { name: a, uses: x, timeout: 1s, undo: y }\n"
        "  - { name: b, uses: x, timeout: 1s%s }\n"
        "  - { name: c, uses: x, timeout: 1s }"
    )
    (found,) = warnings(text % "")
    assert "Step `b` has neither `undo` nor `effect`: it counts as a write" in found
    assert warnings(text % ", effect: read") == []
    assert warnings((text % "").replace("on_failure: compensate", "on_failure: abort")) == []


def test_guideline_1_a_deadline_that_the_timeout_of_the_run_cuts_short() -> None:
    (found,) = warnings(CALM + "  - { name: a, approval: { prompt: Go?, deadline: 24h } }")
    assert "The run ends before the `deadline` of step `a`: its `timeout` is 1h" in found
    assert warnings(CALM + "  - { name: a, approval: { prompt: Go?, deadline: 30m } }") == []


def test_guideline_4_a_condition_that_skips_the_steps_behind_it() -> None:
    text = CALM + (
        "  - { name: a, uses: x, timeout: 1s, if: '${{ input.big }}', depends_on: [] }\n"
        "  - { name: b, uses: x, timeout: 1s, depends_on: [%s] }\n"
        "  - { name: c, uses: x, timeout: 1s, depends_on: [b] }"
    )
    (found,) = warnings(text % "a")
    assert "If the condition of step `a` is false, `b`, `c` are skipped too; the run still succeeds" in found
    (one,) = warnings((text % "a").replace("depends_on: [b]", "depends_on: []"))
    assert "`b` is skipped too; the run still succeeds" in one
    assert warnings(text % "{ step: a, allow: [skipped] }") == []


def test_guideline_4_compensation_with_nothing_to_take_back() -> None:
    (found,) = warnings(
        CALM.replace("timeout", "on_failure: compensate\ntimeout") + "  - { name: a, uses: x, timeout: 1s }"
    )
    assert "has nothing to take back" in found


def test_guideline_4_a_failure_that_ends_the_run_first() -> None:
    text = CALM + (
        "  - {{ name: a, uses: x, timeout: 1s{policy} }}\n"
        "  - {{ name: b, uses: x, timeout: 1s, depends_on: [{{ step: a, allow: [failed] }}] }}"
    )
    (found,) = warnings(text.format(policy=""))
    assert "`b` never runs after `a` has failed" in found
    assert warnings(text.format(policy=", on_failure: continue")) == []


def test_guideline_5_under_ten_steps() -> None:
    nine = "".join(f"  - {{ name: s{n}, uses: x, timeout: 1s }}\n" for n in range(9))
    assert warnings(CALM + nine) == []
    (found,) = warnings(CALM + nine + "  - { name: last, uses: x, timeout: 1s }")
    assert "10 steps are hard to follow" in found


def test_guideline_7_irreversible_without_an_approval_before_it() -> None:
    pay = "  - { name: pay, uses: x, timeout: 1s, effect: irreversible }\n"
    gate = "  - { name: gate, approval: { deadline: 1h } }\n"
    (found,) = warnings(CALM + pay + gate)
    assert "Step `pay` cannot be taken back and no gate approves it" in found
    assert warnings(CALM + gate + pay) == []


def test_an_expression_in_the_marks_of_other_tools_is_told() -> None:
    given = '{ p: "${ input.email }", q: "{{ steps.b }}", r: "${HOME} {{ x }}" }'
    found = warnings(CALM + f"  - {{ name: a, uses: x, timeout: 1m, with: {given} }}\n")
    assert len(found) == 2
    told = "".join(found)
    assert "`${ input.email }` in step `a` is taken as text" in told
    assert "Write `${{ steps.b }}` if you mean the value." in told
