"""`simulate`: a definition in, every possible ending of its runs out.

The only entry point of this package. No handler runs, nothing is stored, and the same definition gives the same report.
"""

from __future__ import annotations

from typing import Any

import msgspec

from stepkeep.kernel.definition import Definition, Loop, Map
from stepkeep.kernel.states import StepState
from stepkeep.simulate.endings import Ending
from stepkeep.simulate.explore import Explorer, Progress
from stepkeep.simulate.findings import Finding, findings
from stepkeep.simulate.world import Stage

MAX_PATHS = 5_000
NAMED_STEPS = 100
"""Up to this many steps, every ending names the state of each."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Every walked path. `unwalked` paths are known but were not walked; if it is not 0, the paths are a sample."""

    definition: Definition
    steps: tuple[str, ...]
    endings: tuple[Ending, ...]
    longest: Ending
    unwalked: int
    findings: tuple[Finding, ...]
    bounded: tuple[str, ...] = ()
    """The maps and loops, which were walked with two elements at most."""

    @property
    def serious(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.serious)

    def plain(self) -> dict[str, Any]:
        """The report as a JSON object; times are seconds."""
        definition = self.definition
        return {
            "workflow": definition.name,
            "version": definition.version,
            "dialect": definition.dialect,
            "steps": list(self.steps),
            "paths": len(self.endings),
            "unwalked": self.unwalked,
            "bounded": list(self.bounded),
            "longest": self._plain(self.longest),
            "findings": [_plain_finding(finding) for finding in self.findings],
            "endings": [self._plain(ending) for ending in self.endings],
        }

    def _plain(self, ending: Ending) -> dict[str, Any]:
        named = zip(self.steps, ending.states, strict=True)
        few = len(self.steps) <= NAMED_STEPS
        telling = (StepState.FAILED, StepState.SKIPPED)
        return {
            "path": ending.path,
            "deviations": [
                {"step": what.step, "part": what.place.part, "fate": what.fate, "text": what.text}
                for what in ending.deviations
            ],
            "ended": ending.ended,
            "state": ending.state,
            "rollback": ending.rollback,
            "seconds": ending.elapsed / 1_000_000,
            "counts": ending.counts(),
            "states": {name: state for name, state in named if few or state in telling},
            "undone": list(ending.undone),
            "hooks_failed": list(ending.hooks_failed),
            "left": [*ending.left, *ending.irreversible],
            "in_doubt": list(ending.in_doubt),
            "waits_for": list(ending.waits),
        }


def _plain_finding(finding: Finding) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "serious": finding.serious,
        "step": finding.step,
        "message": finding.message,
        "hint": finding.hint,
        "paths": list(finding.paths[:20]),
        "path_count": len(finding.paths),
    }


def simulate(
    definition: Definition,
    *,
    given: bytes | None = None,
    max_paths: int = MAX_PATHS,
    pairs: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Walk the failure paths of a definition on a virtual clock, through the production decisions.

    `given` is the JSON of an input, for conditions that read it; without it they go both ways. `pairs` walks any two
    deviations together, not only those where the second meets a run that stops. `progress` hears how many of how
    many paths were walked.

    >>> from stepkeep.definition.native import load_text
    >>> text = "{workflow: w, timeout: 1h, steps: [{name: ask, approval: {deadline: 30m}}]}"
    >>> report = simulate(load_text(text, "w.yaml"))
    >>> [f"{ending.path}: {ending.state}" for ending in report.endings if "ask" in ending.path][:2]
    ['ask is rejected: failed', 'ask is not decided: failed']
    >>> report.serious
    ()
    """
    stage = Stage(definition, given)
    walked = Explorer(stage, max_paths=max_paths, pairs=pairs, progress=progress).explore()
    every = (*walked.endings, *walked.slowest[:1])
    return Report(
        definition=definition,
        steps=tuple(planned.name for planned in stage.plan.steps),
        endings=every,
        longest=max((*walked.slowest, *walked.endings), key=lambda ending: ending.elapsed),
        unwalked=walked.unwalked,
        findings=tuple(findings(definition, every)),
        bounded=tuple(planned.name for planned in stage.plan.steps if isinstance(planned.growth, Map | Loop)),
    )
