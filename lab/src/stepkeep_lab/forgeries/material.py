"""True logs to forge: every run of some seeds of the simulator, in canonical names and in its own dialect.

The simulator draws workflows of all dialects and every ending. It must not change a line. `campaign.py` calls it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from stepkeep.conformance.encoding import parse
from stepkeep.dialects import registry
from stepkeep.operations.logs.lines import encode_line
from stepkeep.operations.logs.log import export_run
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep_lab.forgeries.added import FLOW, THEN, has_added
from stepkeep_lab.simulation.run_seed import run_seed
from stepkeep_lab.simulation.scenario import draw, with_changes
from stepkeep_lab.simulation.stage import TENANT

CANONICAL = "canonical"
Line = dict[str, Any]

ONE_DIALECT = {"dialects": 1.0, "alike": False, "letters": 0}
"""Changes to a scenario: every workflow is written in a dialect."""


SMALL = {"dialects": 0.0, "alike": False, "letters": 0, "runs": 8, "steps": 3}
GROWN = {
    THEN: {**SMALL, "planners": 0.7, "flows": 0.0},
    FLOW: {**SMALL, "flows": 0.5, "planners": 0.0, "continued": 0.3},
}
"""Changes to a scenario: most steps have handlers that add steps, or are flows."""


class TrueLog(msgspec.Struct, frozen=True, kw_only=True):
    """The log of one run: whose words it is in, how the run ended, and its lines as text. `about` is `then` if a
    handler has added steps, and `flow` if a flow has made calls."""

    words: str
    run: str
    seed: int
    ending: str
    lines: tuple[bytes, ...]
    about: str = ""
    journal: tuple[bytes, ...] = ()
    """The canonical log of the same run, of a log in a dialect's words."""

    def parsed(self) -> list[Line]:
        """A fresh copy of the lines."""
        return [parse(line) for line in self.lines]


def true_logs(seeds: Iterable[int], *, in_all_words: bool = False) -> Iterator[TrueLog]:
    """The logs of all runs of these seeds, in canonical names and in their own dialect's words, or in all words."""
    for seed in seeds:
        found: list[TrueLog] = []

        async def export(transactor: Transactor, runs: Sequence[str], seed: int = seed) -> None:
            for run in runs:
                found.extend([log async for log in _logs(transactor, run, seed, in_all_words)])  # noqa: B023 - it is of this seed

        run_seed(with_changes(draw(seed), ONE_DIALECT), after=export)
        yield from found


def grown_logs(seeds: Iterable[int], about: str) -> Iterator[TrueLog]:
    """The logs of all runs of these seeds in which a handler added steps, or a flow made calls, in all words."""
    for seed in seeds:
        found: list[TrueLog] = []

        async def export(transactor: Transactor, runs: Sequence[str], seed: int = seed) -> None:
            for run in runs:
                found.extend([log async for log in _logs(transactor, run, seed, True)])  # noqa: B023 - it is of this seed

        run_seed(with_changes(draw(seed), GROWN[about]), after=export)
        for log in found:
            if has_added(log.parsed(), about):
                yield msgspec.structs.replace(log, about=about)


async def _logs(transactor: Transactor, run: str, seed: int, in_all_words: bool) -> Any:
    canonical = await _lines(transactor, run, None)
    written_in = json.loads(canonical[0])["metadata"]["written_in"]
    for words in (CANONICAL, *(registry.names() if in_all_words else [written_in])):
        lines = canonical if words == CANONICAL else await _lines(transactor, run, words)
        journal = () if words == CANONICAL else tuple(canonical)
        yield TrueLog(words=words, run=run, seed=seed, ending=_ending(canonical), lines=tuple(lines), journal=journal)


async def _lines(transactor: Transactor, run: str, dialect: str | None) -> list[bytes]:
    exported = export_run(transactor, run, tenant=TENANT, dialect=dialect)
    return [encode_line(line) async for line in exported]


def _ending(canonical: Sequence[bytes]) -> str:
    """The final state of the run, and what else happened in it."""
    lines = [json.loads(line) for line in canonical]
    triggers = {line["trigger"] for line in lines}
    seen = [name for name, marks in FEATURES.items() if triggers & marks]
    return " ".join([str(lines[-1]["to_state"]), *seen])


FEATURES = {
    "lost lease": {"lease_lost"},
    "released": {"released"},
    "waited": {"waited", "wait_opened"},
    "rejected": {"rejected", "rejected_tolerated"},
    "timed out": {"timed_out", "deadline_passed", "deadline_tolerated"},
    "by hand": {"completion_succeeded"},
    "held": {"held_exhausted"},
    "partial rollback": {"undo_failed"},
    "retried": {"retry_scheduled"},
}
"""What may happen in a run besides its ending, by the triggers that show it."""
