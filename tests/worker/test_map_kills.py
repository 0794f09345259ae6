"""A map whose process is killed with `kill -9` before each of its commits is finished by the next process.

`make test` takes a few commits of a map of 20 elements, `make proof` every one, and samples a map of 1,000.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.suites import first_on, in_proof
from tests.worker.map_process import mapping

import stepkeep as sk
from stepkeep.conformance.words.replay import replay_lines
from stepkeep.dialects.registry import judged

LONGEST_LIFE = 120
MOST_COMMITS = 1_000
DIALECTS = ("ioa", "run", "linear", "action", "workstream")


def life(database: str, effects: Path, items: int, nth: int) -> int:
    """The exit status of a process that starts a run of its own and dies before the nth commit."""
    given = [database, str(effects), str(items), f"map-{nth}", str(nth)]
    program = [sys.executable, "-m", "tests.worker.map_process", *given]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=LONGEST_LIFE, check=False)
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
    return ended.returncode


@first_on("sqlite")
@pytest.mark.parametrize(
    ("items", "first", "step"),
    [
        pytest.param(20, 3, 8, id="some commits"),
        in_proof(20, 1, 1, name="every commit"),
        in_proof(1_000, 7, 61, name="1,000 elements"),
    ],
)
@pytest.mark.proof
def test_a_map_that_is_killed_before_a_commit_is_finished_by_the_next_process(
    database_url: str, tmp_path: Path, items: int, first: int, step: int
) -> None:
    deaths = 0
    with sk.Engine(database_url) as engine:
        engine.publish(mapping())
        for nth in range(first, MOST_COMMITS, step):
            effects = tmp_path / f"effects-{nth}"
            effects.mkdir()
            if life(database_url, effects, items, nth) == 0:
                break
            deaths += 1
            finish(engine, effects, items, nth)
    assert deaths >= 2


def finish(engine: sk.Engine, effects: Path, items: int, nth: int) -> None:
    """Go on with the run whose process died, and look at what it did."""
    given = {"items": list(range(items)), "effects": str(effects)}
    result = engine.run(mapping(), given, idempotency_key=f"map-{nth}")
    assert result.output == [n * n for n in range(items)]
    done = {int(path.name): len(path.read_text(encoding="ascii")) for path in effects.iterdir()}
    assert set(done) == set(range(items))
    steps = [step for step in engine.show(result.id)["steps"] if step["name"] != "each"]
    # An element runs again only because its process died: never more often than it was claimed.
    assert items <= sum(done.values()) <= sum(step["attempts"] + step["losses"] for step in steps)
    assert engine.certify(result.id).ok
    for dialect in DIALECTS:
        assert replay_lines(engine.log(result.id, as_=dialect), judged(dialect)).findings == (), dialect
