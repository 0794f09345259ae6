"""The agent of the examples survives `kill -9` at every turn: each thought and each use of a tool is lost once."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.suites import first_on, in_proof

import stepkeep as sk

LONGEST_LIFE = 60


@first_on("sqlite")
@pytest.mark.parametrize("seats", [1, in_proof(49)])
def test_an_agent_that_is_killed_at_every_turn_comes_to_its_answer(
    database_url: str, tmp_path: Path, seats: int
) -> None:
    ledger, marks = tmp_path / "ledger", tmp_path / "marks"
    marks.mkdir()
    program = [sys.executable, "-m", "tests.worker.agent_process", database_url, str(ledger), str(marks), str(seats)]
    refused = sum(seat % 3 == 0 and seat % 2 == 0 for seat in range(1, seats + 1))
    # Every seat has a thought and, unless it is refused, a tool; the last thought is the answer.
    points, deaths = 2 * seats + 1 - refused, 0
    for _ in range(points + 1):
        life = subprocess.run(program, capture_output=True, text=True, timeout=LONGEST_LIFE, check=False)
        if life.returncode != -signal.SIGKILL:
            break
        deaths += 1
    assert life.returncode == 0, life.stderr
    assert deaths == points
    run_id, state, answer = life.stdout.strip().split(" ", 2)
    assert (state, answer) == ("succeeded", f"booked {seats - refused} seats, {refused} refused")
    assert len(list(ledger.glob("*.json"))) == seats - refused
    with sk.Engine(database_url) as engine:
        certificate = engine.certify(run_id)
        assert certificate.ok, certificate
        losses = [step["losses"] for step in engine.show(run_id)["steps"] if step["name"] != "turn"]
        assert sum(losses) == points
