"""The headline of the README: a script that was killed goes on with the same run when it is started again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.suites import first_on

SCRIPT = """
import os, signal, sys
import stepkeep as sk

url, folder = sys.argv[1], sys.argv[2]


def note(line: str) -> int:
    with open(f"{folder}/notes", "a") as notes:
        notes.write(line + "\\n")
    with open(f"{folder}/notes") as notes:
        return notes.read().splitlines().count(line)


@sk.step
def first() -> str:
    note("first")
    return "one"


@sk.step
def second(word: str) -> str:
    if note("second") == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"{word} two"


flow = sk.Workflow("resumed", version=1, lease="1s")
done = flow.step("first", first)
flow.step("second", second, inputs={"word": done.output})

with sk.open(url) as engine:
    print(engine.run(flow, idempotency_key="job-1", check=True).output)
"""


@first_on("sqlite")
def test_a_killed_script_goes_on_with_the_same_run(database_url: str, tmp_path: Path) -> None:
    def script() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", SCRIPT, database_url, str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=os.environ)

    killed, resumed, third = script(), script(), script()
    assert killed.returncode == -9, killed.stderr
    assert (resumed.returncode, resumed.stdout) == (0, "one two\n"), resumed.stderr
    assert (third.returncode, third.stdout) == (0, "one two\n"), third.stderr
    assert (tmp_path / "notes").read_text().split() == ["first", "second", "second"]
