"""Schemathesis finds no server error and no answer that differs from the document, in any role."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.suites import in_proof

SCRIPT = Path(__file__).parents[2] / "scripts" / "fuzz_service.py"
SHORT = ("--examples", "1", "--phases", "examples,fuzzing", "--role", "operator", "--seed", "7", "--include", "^/runs$")
LONG = ("--examples", "90", "--seed", "7")


@pytest.mark.parametrize(
    ("options", "cases"),
    [
        pytest.param(SHORT, 4, id="short"),
        in_proof(LONG, 50_000, name="long"),
        in_proof((*LONG, "--postgres"), 50_000, name="long-postgres"),
    ],
)
def test_no_request_is_answered_otherwise_than_documented(options: tuple[str, ...], cases: int, tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), *options, "--reports", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    reports = "\n".join(file.read_text(encoding="utf-8")[-4000:] for file in tmp_path.glob("*.txt"))
    reports += (tmp_path / "report.md").read_text(encoding="utf-8")
    assert done.returncode == 0, done.stdout + done.stderr + reports
    found = re.search(r"(\d+) cases in all", done.stdout)
    assert found is not None
    assert int(found[1]) >= cases
