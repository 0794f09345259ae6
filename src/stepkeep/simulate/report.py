"""`simulate`: a definition in, every possible ending of its runs out.

The only entry point of this package. No handler runs, nothing is stored, and the same definition gives the same report.
"""

from __future__ import annotations

from typing import NamedTuple, NotRequired, TypedDict

import msgspec

from stepkeep.kernel.definition import Definition, Effect, Loop, Map, SubWorkflow
from stepkeep.kernel.machine.states import RunState, StepState
from stepkeep.simulate.children import (
    DEEPEST,
    IN_A_CIRCLE,
    MOST_WALKED,
    NO_TIME,
    NOT_FOUND,
    TOO_DEEP,
    TOO_MANY,
    ChildEnds,
    Find,
    children_of,
)
from stepkeep.simulate.endings import Ending
from stepkeep.simulate.explore import WORK, Explorer, Progress
from stepkeep.simulate.findings import Finding, findings
from stepkeep.simulate.world import Stage

MAX_PATHS = 5_000
PATHS_OF_CHILD = 1_000
"""How many paths of one child are walked at most."""
NAMED_STEPS = 100
"""Up to this many steps, every ending names the state of each."""


class PlainDeviation(TypedDict):
    step: str | None
    part: str
    fate: str
    text: str


class PlainEnding(TypedDict):
    """An ending in a report as JSON."""

    path: str
    deviations: list[PlainDeviation]
    ended: bool
    state: str
    rollback: str
    seconds: float
    counts: dict[str, int]
    states: dict[str, StepState]
    undone: list[str]
    hooks_failed: list[str]
    left: list[str]
    in_doubt: list[str]
    waits_for: list[str]


class PlainFinding(TypedDict):
    """A finding in a report as JSON."""

    kind: str
    serious: bool
    step: str | None
    message: str
    hint: str
    paths: list[str]
    path_count: int


class PlainReport(TypedDict):
    """A report as JSON."""

    workflow: str
    version: int
    dialect: str
    steps: list[str]
    paths: int
    unwalked: int
    bounded: list[str]
    longest: PlainEnding
    findings: list[PlainFinding]
    endings: list[PlainEnding]
    children: NotRequired[list[PlainChild]]


class PlainChild(PlainReport):
    """The report of a workflow below it."""

    started_by: list[str]


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
    children: tuple[ChildReport, ...] = ()
    """The workflows below it, each walked once."""

    @property
    def serious(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.serious)

    def plain(self) -> PlainReport:
        """The report as a JSON object; times are seconds."""
        definition = self.definition
        told: PlainReport = {
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
        if self.children:
            told["children"] = [child.plain() for child in self.children]
        return told

    def _plain(self, ending: Ending) -> PlainEnding:
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


class ChildReport(msgspec.Struct, frozen=True, kw_only=True):
    """The walk of a workflow that is started as a child. `started_by` names workflows and steps: `order.ship`."""

    report: Report
    started_by: tuple[str, ...] = ()

    def plain(self) -> PlainChild:
        return {"started_by": list(self.started_by), **self.report.plain()}


def _plain_finding(finding: Finding) -> PlainFinding:
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
    find: Find | None = None,
) -> Report:
    """Walk the failure paths of a definition on a virtual clock, through the production decisions.

    `given` is the JSON of an input, for conditions that read it; without it they go both ways. `pairs` walks any two
    deviations together, not only those where the second meets a run that stops. `progress` hears how many of how
    many paths were walked. `find` gives the definitions of children, whose own paths are then walked too.

    >>> from stepkeep.definition.native.reader import load_text
    >>> text = "{workflow: w, timeout: 1h, steps: [{name: ask, approval: {deadline: 30m}}]}"
    >>> report = simulate(load_text(text, "w.yaml"))
    >>> [f"{ending.path}: {ending.state}" for ending in report.endings if "ask" in ending.path][:2]
    ['ask is rejected: failed', 'ask is not decided: failed']
    >>> report.serious
    ()
    """
    tree = _Tree(find or (lambda child: None), max_paths)
    below = tree.below(definition, (definition.name,))
    report, _ = _walk(definition, below, given=given, max_paths=max_paths, pairs=pairs, progress=progress)
    walked = tuple(msgspec.structs.replace(one, started_by=tuple(tree.starts[key])) for key, one in tree.walked.items())
    return msgspec.structs.replace(report, children=walked)


class _Below(NamedTuple):
    """What is known of the children of a definition, by the names of the steps that start them."""

    ends: dict[str, ChildEnds]
    unwalked: dict[str, str]


def _walk(
    definition: Definition,
    below: _Below,
    *,
    given: bytes | None,
    max_paths: int,
    pairs: bool,
    progress: Progress | None,
) -> tuple[Report, Stage]:
    stage = Stage(definition, given, below.ends)
    walked = Explorer(stage, max_paths=max_paths, pairs=pairs, progress=progress).explore()
    every = (*walked.endings, *walked.slowest[:1])
    report = Report(
        definition=definition,
        steps=tuple(planned.name for planned in stage.plan.steps),
        endings=every,
        longest=max((*walked.slowest, *walked.endings), key=lambda ending: ending.elapsed),
        unwalked=walked.unwalked,
        findings=tuple(findings(definition, every, below.ends, below.unwalked)),
        bounded=tuple(planned.name for planned in stage.plan.steps if isinstance(planned.kind.growth, Map | Loop)),
    )
    return report, stage


class _Tree:
    """The workflows below a definition. Each is walked once, after those that it starts."""

    def __init__(self, find: Find, max_paths: int) -> None:
        self._find, self._max = find, min(max_paths, PATHS_OF_CHILD)
        self._work = 0
        self.walked: dict[tuple[str, int], ChildReport] = {}
        self.starts: dict[tuple[str, int], list[str]] = {}
        self._ends: dict[tuple[str, int], ChildEnds] = {}

    def below(self, definition: Definition, above: tuple[str, ...]) -> _Below:
        """Walk the children of a definition. `above` names the workflows from the first one down to it."""
        found = _Below({}, {})
        for step, child in children_of(definition).items():
            ends = self._ends_of(f"{definition.name}.{step}", child, above)
            if isinstance(ends, str):
                found.unwalked[step] = ends
            else:
                found.ends[step] = ends
        return found

    def _ends_of(self, step: str, child: SubWorkflow, above: tuple[str, ...]) -> ChildEnds | str:
        """How the child may end; a text says why it is not walked."""
        if child.workflow in above:
            return IN_A_CIRCLE
        definition = self._find(child)
        if definition is None:
            return NOT_FOUND
        key = (definition.name, definition.version)
        if key not in self._ends:
            if len(above) >= DEEPEST:
                return TOO_DEEP
            if len(self._ends) >= MOST_WALKED:
                return TOO_MANY
            if self._work > WORK:
                return NO_TIME
            below = self.below(definition, (*above, definition.name))
            report, stage = _walk(definition, below, given=None, max_paths=self._max, pairs=False, progress=None)
            self._work += stage.work
            self._ends[key] = _ends(report, stage)
            self.walked[key] = ChildReport(report=report)
        self.starts.setdefault(key, []).append(step)
        return self._ends[key]


def _ends(report: Report, stage: Stage) -> ChildEnds:
    ended = {ending.state for ending in report.endings if ending.ended}
    acting = [stage.plan.at(no) for no in sorted(stage.effects)]
    leaves = [
        planned.definition.name
        for planned in acting
        if planned.definition.undo is None and planned.definition.effect is not Effect.IRREVERSIBLE
    ]
    inner = [f"{step} (a child)" for step, ends in stage.children.items() if ends.leaves]
    return ChildEnds(
        fails=RunState.FAILED in ended,
        is_rolled_back=RunState.ROLLED_BACK in ended,
        never_ends=any(not ending.ended for ending in report.endings),
        may_leave=any(planned.definition.undo is None for planned in acting) or bool(inner),
        has_effects=bool(acting),
        leaves=tuple(dict.fromkeys([*leaves, *inner])),
        leaves_when=frozenset(ending.state for ending in report.endings if ending.leaves_something),
    )
