"""The output of a step that may be skipped: `check` and `simulate` tell where it is read, and Python can say a default.

What was skipped is said by the result of a run, and advice speaks the language in which the workflow was written.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.cli.main import main
from stepkeep.definition.native.reader import check_text
from stepkeep.kernel.errors import InvalidInput
from stepkeep.simulate.report import simulate

ASKS = {
    "plain": ("${{ steps.enrich.output }}", True),
    "a field": ("a ${{ steps['enrich'].output.rate + 1 }}", True),
    "has": ("${{ has(steps.enrich.output) ? steps.enrich.output : null }}", False),
    "no expression": ("steps.enrich.output", False),
}


def definition(read: str, edge: str = "{step: enrich, allow: [skipped]}", options: str = "", skips: str = "") -> str:
    skips = skips or "on_failure: skip"
    return f"""
workflow: nightly
timeout: 1h
steps:
  - {{name: enrich, uses: x, timeout: 1s, effect: read, {skips}, depends_on: []}}
  - {{name: load, uses: x, timeout: 1s, effect: read, depends_on: [enrich]}}
  - {{name: summary, uses: x, timeout: 1s, effect: read, with: {{r: "{read}"}}, depends_on: [{edge}] {options}}}
"""


def told(text: str) -> list[str]:
    report = check_text(text, "nightly.yaml")
    assert report.definition is not None, report.problems
    found = [str(one) for one in report.warnings if "reads the output of" in one.message]
    walked = [one for one in simulate(report.definition).findings if one.kind == "missing-output"]
    assert len(walked) == len(found)
    return found


@pytest.mark.parametrize("how", ASKS)
def test_a_read_is_told_unless_it_asks_first(how: str) -> None:
    read, is_told = ASKS[how]
    found = told(definition(read))
    assert bool(found) is is_told
    for line in found:
        assert "Step `summary` reads the output of `enrich`, which has none if it is skipped or fails." in line
        assert 'has(steps["enrich"].output) ? ' in line


def test_a_read_is_told_only_where_the_step_may_run_without_the_other_one() -> None:
    read = "${{ steps.enrich.output }}"
    assert told(definition(read, skips='if: "input.go == 1"'))
    assert told(definition(read, skips="on_failure: continue", edge="{step: enrich, allow: [failed]}"))
    assert not told(definition(read, edge="enrich"))
    assert not told(definition(read, edge="{step: enrich, allow: [skipped]}, load")), "load has required it"
    assert not told(definition(read, options=', if: "has(steps.enrich.output)"'))
    assert not told(definition(read, options=", if: \"steps.enrich.state == 'succeeded'\""))
    assert not told(definition(read, skips="on_failure: abort"))


def test_what_is_skipped_with_another_step_has_no_output_either() -> None:
    assert told(definition("${{ steps.load.output }}", edge="{step: load, allow: [skipped]}"))


def test_python_says_a_default(database_url: str) -> None:
    def enrich() -> dict[str, Any]:
        return {"rates": [1]}

    def summary(rates: Any, first: Any, rate: Any) -> list[Any]:
        return [rates, first, rate]

    def nightly(name: str, wanted: bool) -> sk.Workflow:
        flow = sk.Workflow(name, timeout="1h")
        rates = flow.step("enrich", enrich, inputs={}, if_=flow.input.wanted == wanted)
        read = {
            "rates": rates.output.or_(None),
            "first": rates.output.rates[0].or_("none"),
            "rate": rates.output["no such"].or_(flow.input.wanted),
        }
        flow.step("summary", summary, inputs=read, after=rates.allow("skipped"))
        assert not [one for one in flow.check().warnings if "reads the output" in one.message]
        return flow

    with sk.open(database_url) as engine:
        assert engine.run(nightly("all", True), {"wanted": True}).output == [{"rates": [1]}, 1, True]
        assert engine.run(nightly("none", False), {"wanted": True}).output == [None, "none", True]
    with pytest.raises(InvalidInput, match="is always there"):
        nightly("x", True).input.or_(1)


def test_the_result_of_a_run_says_what_was_skipped(database_url: str) -> None:
    def work() -> int:
        return 1

    flow = sk.Workflow("cascade", timeout="1h")
    first = flow.step("first", work, inputs={}, if_="1 > 2")
    flow.step("second", work, inputs={}, after=first)
    whole = sk.Workflow("whole", timeout="1h")
    whole.step("first", work, inputs={})
    with sk.open(database_url) as engine:
        result = engine.run(flow, check=True)
        [warning] = result.warnings
        assert "so second was skipped too" in warning
        assert str(result) == f"run {result.run_id} succeeded; warning: {warning}"
        assert engine.wait(result.run_id).warnings == result.warnings
        assert engine.run(whole, check=True).warnings == []


PROGRAM = """
import stepkeep as sk

@sk.step("spoken.work")
def work(x=None): ...

flow = sk.Workflow("spoken", on_failure="compensate")
first = flow.step("first", work, inputs={}, if_="1 < 2", effect="write")
second = flow.step("second", work, inputs={}, after=first)
flow.step("third", work, inputs={"x": first.output}, after=[second.allow("skipped"), first.allow("skipped")])
flow.approval("gate", after=second)
flow.workflow("child", "other", after=second)
flow.step("manual", work, inputs={}, after=second, completion="manual")
flow.step("far", "spoken.elsewhere", inputs={}, after=second, effect="read")
"""
OF_YAML = re.compile(r"`[a-z_]+: |`\{|\bhas\(|depends_on|`if`|`with`|--app")


def test_advice_on_a_python_file_speaks_python(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "spoken.py").write_text(PROGRAM)
    main(["check", str(tmp_path / "spoken.py"), "--json"])
    checked = json.loads(capsys.readouterr().out)["warnings"]
    main(["simulate", str(tmp_path / "spoken.py"), "--json"])
    walked = json.loads(capsys.readouterr().out)["findings"]
    said = [f"{one['message']} {one['hint']}" for one in (*checked, *walked)]
    assert [text for text in said if OF_YAML.search(text)] == []
    for word in ('.allow("skipped")', ".or_(None)", 'timeout="1h"', 'deadline="24h"', 'effect="read"'):
        assert any(word in text for text in said), word
