"""The curl lines of docs/http.md work as they are printed, against `stepkeep dev`."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.api.test_service import Start, program, said

__all__ = ["program"]

PAGE = Path(__file__).parents[2] / "docs" / "http.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(language: str) -> list[str]:
    return [found[2] for found in FENCE.finditer(PAGE.read_text(encoding="utf-8")) if found[1] == language]


@pytest.mark.docs
def test_the_lines_of_the_page_work_as_printed(program: Start, tmp_path: Path) -> None:
    [handlers], [workflow] = blocks("python"), blocks("yaml")
    (tmp_path / "handlers.py").write_text(handlers)
    (tmp_path / "hello.yaml").write_text(workflow)
    setting, *scripts = blocks("sh")
    assert setting.startswith("export SERVICE=http://127.0.0.1:8321 KEY=$(cat .stepkeep/dev.key)")
    told = said(program("dev", "--app", "handlers.py", "--port", "0", "--json"))
    # Only the port differs: that of the page may be taken here.
    lines = "\n".join(["set -euo pipefail", setting.replace("http://127.0.0.1:8321", told["address"]), *scripts])
    done = subprocess.run(
        ["bash", "-c", lines], cwd=tmp_path, capture_output=True, text=True, timeout=120, env={**os.environ}
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert '"output":"Hello, Ada"' in done.stdout
    assert "event: end" in done.stdout
    assert '"status":"SUCCEEDED"' in done.stdout
    assert (tmp_path / "evidence.zip").read_bytes().startswith(b"PK")
    assert '"repeated":false' in done.stdout
    assert '"late_timers"' in done.stdout, "the last line was reached"
