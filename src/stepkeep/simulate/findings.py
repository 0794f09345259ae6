"""Derives findings from the endings of a definition, one function per kind.

Serious findings leave a run waiting forever or an effect behind; they fail a check in CI. The others are advice.
Effects of a plain cancel or of a failing undo step are shown, but are not findings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice

import msgspec

from stepkeep.definition.durations import format_duration
from stepkeep.definition.native.lint import ask_first, missing_outputs, skip_cascades
from stepkeep.kernel.composition.segments import read_element_name
from stepkeep.kernel.definition import CompensateWhen, Completion, Definition, Flow, StepDefinition, Then
from stepkeep.kernel.machine.states import OnFailure, RunState, StepState
from stepkeep.kernel.plan import laid_out
from stepkeep.simulate.children import ChildEnds, children_of
from stepkeep.simulate.endings import Ending
from stepkeep.simulate.fates import Fate
from stepkeep.simulate.world import WALKED

SHOWN = 3
MOST_CASCADES = 50


class Kind(StrEnum):
    STUCK = "stuck"
    NO_DEADLINE = "no-deadline"
    UNCOMPENSATED = "uncompensated"
    IN_DOUBT = "in-doubt"
    IRREVERSIBLE = "irreversible"
    HOOK_WITHOUT_RETRY = "hook-without-retry"
    NO_RUN_TIMEOUT = "no-run-timeout"
    SKIPPED_TOO = "skipped-too"
    MISSING_OUTPUT = "missing-output"
    NOT_WALKED = "not-walked"


SERIOUS = frozenset({Kind.STUCK, Kind.NO_DEADLINE, Kind.UNCOMPENSATED})


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One finding: the step, what is wrong, what to do, and the paths that show it."""

    kind: Kind
    step: str | None
    message: str
    hint: str
    paths: tuple[str, ...] = ()
    serious: bool = False


def findings(
    definition: Definition,
    endings: Sequence[Ending],
    children: Mapping[str, ChildEnds] | None = None,
    unwalked: Mapping[str, str] | None = None,
) -> list[Finding]:
    """All findings, the serious ones first. `children` tells of the children of steps, `unwalked` why some are not
    walked, both by the name of the step."""
    found = [
        *_stuck(definition, endings),
        *_without_deadline(definition),
        *_uncompensated(definition, endings),
        *_in_doubt(definition, endings),
        *_irreversible(definition, endings),
        *_hooks_without_retry(definition),
        *_without_timeout(definition),
        *_skipped_too(definition, endings),
        *_missing_output(definition, endings),
        *_left_by_children(endings, children or {}),
        *_not_walked(definition, unwalked or {}),
    ]
    return sorted(found, key=lambda finding: not finding.serious)


def _finding(kind: Kind, step: str | None, message: str, hint: str, paths: Iterable[str] = ()) -> Finding:
    return Finding(
        kind=kind, step=step, message=message, hint=hint, paths=tuple(dict.fromkeys(paths)), serious=kind in SERIOUS
    )


def _stuck(definition: Definition, endings: Sequence[Ending]) -> Iterator[Finding]:
    stuck: dict[tuple[str, ...], list[str]] = {}
    for ending in endings:
        if not ending.ended:
            stuck.setdefault(ending.waits, []).append(ending.path)
    for waits, paths in stuck.items():
        what = " and ".join(waits)
        if not waits:
            said = f"A run that stays {RunState.RUNNING} was not at its end after very many events."
            yield _finding(Kind.STUCK, None, said, "Bound its retries.", paths)
            continue
        said = f"{what} may wait forever: it has no deadline, and the run has no timeout."
        hint = f"Give {what} a `deadline`, for example 24h; and the run a `timeout`."
        yield _finding(Kind.STUCK, waits[0], said, hint, paths)


def _without_deadline(definition: Definition) -> Iterator[Finding]:
    if definition.timeout is None:
        return  # Reported as stuck above.
    for step in definition.steps:
        if what := _waits_without_end(step):
            limit = format_duration(definition.timeout)
            said = f"The {what} of {step.name} has no deadline: only the run's timeout of {limit} ends it."
            yield _finding(Kind.NO_DEADLINE, step.name, said, "Give it a `deadline` that is shorter.")


def _sleeps(step: StepDefinition) -> bool:
    return step.wait is not None and step.wait.sleeps is True


def _waits_without_end(step: StepDefinition) -> str:
    for what, waits in (("approval", step.approval), ("approval", step.hold), ("wait", step.wait)):
        if waits is not None and waits.deadline is None and not _sleeps(step):
            return what
    if step.completion is Completion.MANUAL and step.completion_deadline is None:
        return "manual completion"
    return ""


def _by_step(endings: Iterable[Ending], field: str) -> dict[str, list[Ending]]:
    found: dict[str, list[Ending]] = {}
    for ending in endings:
        for name in getattr(ending, field):
            found.setdefault(name, []).append(ending)
    return found


def _uncompensated(definition: Definition, endings: Sequence[Ending]) -> Iterator[Finding]:
    counted = [ending for ending in endings if ending.ended and not _was_wished(ending)]
    steps = _templates(definition)
    for name, left in _by_step(counted, "left").items():
        # An undo step that may fail is not a mistake of the definition.
        telling = [ending for ending in left if not ending.hooks_failed]
        if telling:
            paths = [ending.path for ending in telling]
            said = f"What {name} did stays when {_some(paths)}."
            yield _finding(Kind.UNCOMPENSATED, name, said, _remedy(definition, steps[name], telling), paths)


def _remedy(definition: Definition, step: StepDefinition, endings: Sequence[Ending]) -> str:
    if step.undo is None:
        return f"Give {step.name} an `undo`, or say `effect: read` or `effect: irreversible`."
    blamed = {what.step for ending in endings for what in ending.deviations if what.step is not None}
    if blamed == {step.name} and step.child is not msgspec.UNSET:
        return (
            f"Let {step.child.workflow} undo itself: say `on_failure: compensate` there, and give its steps an `undo`."
        )
    if blamed == {step.name} and step.compensate_when is CompensateWhen.SUCCEEDED:
        return f"Say `compensate_when: attempted` for {step.name}: its handler had done its work."
    if definition.on_failure is not OnFailure.COMPENSATE:
        return "Its `undo` is not run: say `on_failure: compensate` for the run, or for the steps that fail."
    return "Say `on_failure: compensate` for the steps that fail."


def _was_wished(ending: Ending) -> bool:
    """A cancel without rollback, or one that does not wait for attempts in flight, leaves effects behind on purpose."""
    return Fate.CANCELLED in ending.fates


def _in_doubt(definition: Definition, endings: Sequence[Ending]) -> Iterator[Finding]:
    counted = [ending for ending in endings if ending.ended and not _was_wished(ending) and not ending.hooks_failed]
    steps = _templates(definition)
    for name, doubtful in _by_step(counted, "in_doubt").items():
        paths = [ending.path for ending in doubtful]
        said = f"{name} may have done its work, and is not undone, when {_some(paths)}."
        hint = f"Say `compensate_when: attempted` for {name}: its `undo` must then bear finding nothing to undo."
        if steps[name].child and any(Fate.EXPIRES in ending.fates for ending in doubtful):
            hint = f"Give {name} a longer `deadline`, and the workflow a longer `grace`: a child that ended is certain."
        elif steps[name].child:
            hint = f"Give the workflow a longer `grace`: it is how long the child of {name} may take to undo itself."
        elif steps[name].undo is None:
            hint = f"Give {name} an `undo` and `compensate_when: attempted`, or a way to look whether it was done."
        yield _finding(Kind.IN_DOUBT, name, said, hint, paths)


def _irreversible(definition: Definition, endings: Sequence[Ending]) -> Iterator[Finding]:
    counted = [ending for ending in endings if ending.ended and not _was_wished(ending)]
    for name, after in _by_step(counted, "irreversible").items():
        paths = [ending.path for ending in after if not ending.hooks_failed]
        if paths:
            said = f"{name} cannot be taken back, and the run still fails after it when {_some(paths)}."
            yield _finding(Kind.IRREVERSIBLE, name, said, "Put it last, after everything that can fail.", paths)


def _templates(definition: Definition) -> dict[str, StepDefinition]:
    """What does the work of each step, by its name; of the cases of a choice, the one that has no undo."""
    return {step.name: step for step in sorted(definition.work, key=lambda one: one.undo is None)}


def _hooks_without_retry(definition: Definition) -> Iterator[Finding]:
    for step in definition.work:
        if step.undo is not None and step.undo.retry.max_attempts == 1:
            said = f"The undo of {step.name} is tried once only: one bad moment leaves its effect behind."
            yield _finding(Kind.HOOK_WITHOUT_RETRY, step.name, said, "Give the hook a `retry`.")


def _without_timeout(definition: Definition) -> Iterator[Finding]:
    if definition.timeout is None:
        said = "The run has no timeout: where no worker comes, it waits forever."
        yield _finding(Kind.NO_RUN_TIMEOUT, None, said, "Add `timeout`, for example 1h.")


def _skipped_too(definition: Definition, endings: Sequence[Ending]) -> Iterator[Finding]:
    """A run that succeeds although a false condition skipped the steps behind it."""
    places = {step.name: place for place, step in enumerate(laid_out(definition))}
    good = [ending for ending in endings if ending.state is RunState.SUCCEEDED]
    for _, name, skipped in islice(skip_cascades(definition), MOST_CASCADES):
        wanted = [places[name], *(places[one] for one in skipped)]
        paths = [one.path for one in good if all(one.states[place] is StepState.SKIPPED for place in wanted)]
        if paths:
            said = f"{_named(skipped)} are skipped with {name} when {_some(paths)}, and the run still succeeds."
            hint = f"Say `{{step: {name}, allow: [skipped]}}` where a step should run all the same."
            yield _finding(Kind.SKIPPED_TOO, name, said, hint, paths)


def _missing_output(definition: Definition, endings: Sequence[Ending]) -> Iterator[Finding]:
    """A step that runs, and reads the output of one that was skipped or failed. The walk evaluates no inputs."""
    places = {step.name: place for place, step in enumerate(laid_out(definition))}
    for _, reader, read in islice(missing_outputs(definition), MOST_CASCADES):
        without = [one for one in endings if one.states[places[read]] in (StepState.SKIPPED, StepState.FAILED)]
        if reader is None:
            paths = [one.path for one in without if one.state is RunState.SUCCEEDED]
        else:
            paths = [one.path for one in without if one.states[places[reader]] is StepState.SUCCEEDED]
        if paths:
            who = "The workflow" if reader is None else reader
            said = f"{who} reads the output of {read}, which has none when {_some(paths)}."
            yield _finding(Kind.MISSING_OUTPUT, reader, said, ask_first(read), paths)


def _left_by_children(endings: Sequence[Ending], children: Mapping[str, ChildEnds]) -> Iterator[Finding]:
    """A run that rolls back past a child which has an effect without an undo."""
    for name, ends in children.items():
        if not ends.leaves:
            continue
        after = [one for one in endings if name in one.children_undone]
        paths = [one.path for one in after if not _was_wished(one) and not one.hooks_failed]
        if paths:
            said = f"The rollback of the child of {name} leaves what {_named(ends.leaves)} did there: it has no `undo`."
            hint = "Give it an `undo` in that workflow, or say `effect: read` or `effect: irreversible` there."
            yield _finding(Kind.UNCOMPENSATED, _step_of(name), said, hint, paths)


def _step_of(name: str) -> str:
    """The step that is written, of the name of a step or of a case."""
    named = read_element_name(name)
    return name if named is None else named[1]


def _not_walked(definition: Definition, unwalked: Mapping[str, str]) -> Iterator[Finding]:
    """Where the walk is bounded: a flow with all its calls is one step, and so is a child that is not walked;
    added steps are a few."""
    for step in definition.steps:
        if isinstance(step.growth, Flow):
            said = f"{step.name} is a flow: its calls are known only while it runs, and are not walked here."
            yield _finding(Kind.NOT_WALKED, step.name, said, "Test the function with the handlers of its calls.")
        if isinstance(step.growth, Then):
            said = f"{step.name} adds steps that are known only while it runs: {WALKED} in a row stand for them here."
            yield _finding(Kind.NOT_WALKED, step.name, said, "Test the handler, and what its steps do when they fail.")
    for name, child in children_of(definition).items():
        if name in unwalked:
            said = f"{name} starts {child.workflow}, whose own paths are not walked: {unwalked[name]}."
            yield _finding(Kind.NOT_WALKED, _step_of(name), said, "Simulate that workflow by itself.")


def _named(names: Sequence[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more:,} more" if more > 0 else "")


def _some(paths: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(paths))
    more = len(distinct) - SHOWN
    return "; ".join(distinct[:SHOWN]) + (f"; and {more:,} more" if more > 0 else "")
