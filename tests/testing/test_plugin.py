"""pytest finds the fixtures by itself, and everything that the page on testing shows runs as shown."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    """A pytest of its own, which loads the plugin as an installed one, and no others."""
    pytester.plugins = []
    return pytester.runpytest_subprocess("-p", "stepkeep.testing.plugin", "-W", "error", *options)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def test_the_plugin_is_declared_where_pytest_looks_for_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"stepkeep": "stepkeep.testing.plugin"}


def test_the_fixtures_are_there_for_any_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import stepkeep as sk

        ONE = "{workflow: one, timeout: 1h, steps: [{name: a, uses: a.b}, {name: g, approval: {deadline: 1h}}]}"

        def test_workbench(workbench):
            workbench.replace("a.b", returns=1)
            run = workbench.run(workbench.load(ONE))
            run.approve()
            run.assert_path("a", "g")

        def test_each_test_has_its_own(workbench):
            assert workbench.call(workbench.engine.runs())["runs"] == []

        @sk.step("say.hello")
        def hello() -> str:
            return "hello"

        def test_engine(stepkeep_engine):
            flow = sk.Workflow("flow", timeout="1m")
            flow.step("hello", hello)
            assert stepkeep_engine.run(flow).output == "hello"
        """
    )
    run(pytester).assert_outcomes(passed=3)


def test_a_failed_assertion_is_short_and_tells_the_story(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_path(workbench):
            workbench.replace_others()
            run = workbench.run(workbench.load("{workflow: w, timeout: 1h, steps: [{name: a, uses: a.b}]}"))
            run.assert_path("a", "b")
        """
    )
    result = run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the run took another path", "*expected  a → b", "*found     a", "*a *succeeded*"])
    result.stdout.no_fnmatch_line("*def assert_path*")


@pytest.mark.docs
@pytest.mark.parametrize("place", range(len(BLOCKS)))
def test_what_the_page_shows_runs(pytester: pytest.Pytester, place: int) -> None:
    assert len(BLOCKS) == 4
    pytester.makepyfile(BLOCKS[place])
    run(pytester).assert_outcomes(passed=1)


def test_every_word_of_a_replacement_and_every_assertion_is_on_the_page() -> None:
    from inspect import signature

    from stepkeep.testing import BenchRun, Replacement

    words = [name for name in signature(Replacement).parameters if name not in ("name", "function")]
    said = [name for name in vars(BenchRun) if not name.startswith("_")]
    assert [name for name in (*words, *said) if name not in PAGE] == []
