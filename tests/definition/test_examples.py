"""The examples hold together: their handlers exist, take what they are given, and are the same every time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from stepkeep.definition.native.reader import check_file
from stepkeep.definition.python.handlers import default_registry, load_app
from stepkeep.kernel.definition import Effect

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
NATIVE_EXAMPLES = [
    path for path in sorted(EXAMPLES.glob("*.yaml")) if "\nworkflow: " in path.read_text(encoding="utf-8")
]
"""Those in the native format; the dialects' own have tests of their own."""


@pytest.fixture(autouse=True)
def _clean_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.mark.parametrize("path", NATIVE_EXAMPLES, ids=lambda path: path.stem)
def test_workflows_in_yaml_fit_their_handlers(path: Path) -> None:
    load_app(str(EXAMPLES / "handlers.py"))
    report = check_file(path, default_registry)
    assert report.problems == ()
    assert report.warnings == ()


READ = """
import json, sys
from stepkeep.definition.python.handlers import load_app
from stepkeep.definition.python.workflow import workflows_in
(flow,) = workflows_in(load_app(sys.argv[1]))
report = flow.check()
account, workspace, welcome = report.definition.steps
after = [edge.step for edge in welcome.depends_on]
print(json.dumps([report.problems, report.warnings, account.retry.max_attempts, workspace.effect, after]))
"""


def test_the_workflow_in_python_is_one() -> None:
    """In a process of its own: its import of `handlers` must not meet another test's module of that name."""
    done = subprocess.run(
        [sys.executable, "-c", READ, str(EXAMPLES / "onboarding.py")], capture_output=True, check=True
    )
    problems, warnings, attempts, effect, after = json.loads(done.stdout)
    assert (problems, warnings) == ([], [])
    assert (attempts, effect, after) == (5, Effect.WRITE, ["provision-workspace"])
