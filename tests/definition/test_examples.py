"""The examples hold together: their handlers exist, take what they are given, and are the same every time."""

import sys
from pathlib import Path

import pytest

from stepkeep.definition.handlers import default_registry, load_app
from stepkeep.definition.native import check_file
from stepkeep.definition.python import workflows_in
from stepkeep.kernel.definition import Effect

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
NATIVE_EXAMPLES = [
    path for path in sorted(EXAMPLES.glob("*.yaml")) if "\nworkflow: " in path.read_text(encoding="utf-8")
]
"""Those in the native format; the dialects' own have tests of their own."""


@pytest.fixture(autouse=True)
def _clean_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))


@pytest.mark.parametrize("path", NATIVE_EXAMPLES, ids=lambda path: path.stem)
def test_workflows_in_yaml_fit_their_handlers(path: Path) -> None:
    load_app(str(EXAMPLES / "handlers.py"))
    report = check_file(path, default_registry)
    assert report.problems == ()
    assert [warning for warning in report.warnings if "`roles` are shown" not in warning.message] == []


def test_the_workflow_in_python_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    # Another test may have loaded a module of the same name from a folder of its own.
    monkeypatch.delitem(sys.modules, "handlers", raising=False)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    (flow,) = workflows_in(load_app(str(EXAMPLES / "onboarding.py")))
    report = flow.check()
    assert report.problems == ()
    assert report.warnings == ()
    assert report.definition is not None
    account, workspace, welcome = report.definition.steps
    assert account.retry.max_attempts == 5
    assert workspace.effect is Effect.WRITE
    assert [edge.step for edge in welcome.depends_on] == ["provision-workspace"]
