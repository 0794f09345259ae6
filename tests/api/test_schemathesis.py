"""Schemathesis finds no server error and no answer that differs from the document: a few requests of one role and path.

The long check has parts of its own, which run `scripts/fuzz_service.py` on both stores."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "fuzz_service.py"
FEW = ("--examples", "1", "--phases", "examples,fuzzing", "--role", "operator", "--seed", "7", "--include", "^/runs$")


def test_no_request_is_answered_otherwise_than_documented(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), *FEW, "--reports", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    reports = "\n".join(file.read_text(encoding="utf-8")[-4000:] for file in tmp_path.glob("*.txt"))
    reports += (tmp_path / "report.md").read_text(encoding="utf-8")
    assert done.returncode == 0, done.stdout + done.stderr + reports
    found = re.search(r"(\d+) cases in all", done.stdout)
    assert found is not None
    assert int(found[1]) >= 4
