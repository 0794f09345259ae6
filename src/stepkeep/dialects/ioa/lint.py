"""Advice on a correct workflow that may still cause trouble: seed 000 section 6, in the terms of its format.

The same guidelines as `definition.native.lint`. In the resource, gates have timeouts instead of deadlines, and
compensations are separate from their steps. Warnings stop nothing. The front end calls it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from stepkeep.definition.durations import format_duration
from stepkeep.definition.findings import Finding, Path
from stepkeep.definition.native.lint import MANY_STEPS
from stepkeep.dialects.ioa.checks import GATE, is_gate, prompt_of
from stepkeep.dialects.ioa.written import SpecBlock, StepBlock, WorkflowResource
from stepkeep.kernel.definition import Definition, StepDefinition
from stepkeep.kernel.machine.states import OnFailure

MANY_PARALLEL = 5

TELLING = re.compile(r"notif|\b(inform|announce|e-?mail|welcome|message|remind|slack|tell)", re.IGNORECASE)
READING = re.compile(
    r"\s*(analy[sz]e|read|check|fetch|get|list|look|query|review|assess|score|evaluate)\b", re.IGNORECASE
)
CHANGING = re.compile(
    r"\b(create|update|write|delete|remove|send|deploy|provision|book|charge|pay|publish|set|store|save|notify)",
    re.IGNORECASE,
)
IRREVERSIBLE = re.compile(
    r"irreversibl|permanent|cannot be undone|\b(delete|destroy|erase|purge|wipe|terminate|drop)\b", re.IGNORECASE
)
"""Words of names and actions, which are free text: advice, never a rule."""

USUAL_TIMEOUT = StepDefinition(name="", order=0).timeout


def lint(written: WorkflowResource, definition: Definition) -> list[Finding]:
    """All advice on one workflow."""
    spec = written.spec
    return [
        *_status(written),
        *_workflow_without_timeout(spec),
        *_step_without_timeout(spec, definition),
        *_timeout_that_never_comes(spec),
        *_notification_that_aborts(spec, definition),
        *_compensation_that_never_runs(spec, definition),
        *_nothing_to_compensate(spec, definition),
        *_compensation_of_a_reader(spec),
        *_irreversible_without_a_gate(spec),
        *_many_steps(spec),
        *_many_in_parallel(spec),
        *_half_a_gate(spec),
    ]


def _at(place: int, *rest: str) -> Path:
    return ("spec", "steps", place, *rest)


def _status(written: WorkflowResource) -> Iterator[Finding]:
    if "status" in written.model_fields_set:
        said = "`status` is written by the program that runs the workflow; it is ignored here."
        yield Finding(("status",), said, "Remove it.", key=True, ignored=True)


def _workflow_without_timeout(spec: SpecBlock) -> Iterator[Finding]:
    """Guideline 1: set timeouts for everything."""
    if spec.timeout is None:
        said = "The workflow has no `timeout`: a run that is stuck stays so forever."
        yield Finding(("spec",), said, 'Add one, for example `timeout: "30m"`.', key=True)


def _step_without_timeout(spec: SpecBlock, definition: Definition) -> Iterator[Finding]:
    """Guideline 1; a gate without a timeout waits forever."""
    for place, (step, built) in enumerate(zip(spec.steps, definition.steps, strict=True)):
        if step.timeout is not None:
            continue
        if is_gate(step):
            said = f"The gate `{step.name}` has no `timeout`: it may wait forever."
            yield Finding(_at(place, "name"), said, 'Add one, for example `timeout: "24h"`.')
        elif step.workflow is not None:
            said = f"The workflow of step `{step.name}` has no `timeout`: it may be waited for forever."
            yield Finding(_at(place, "name"), said, 'Add one, for example `timeout: "1h"`.')
        elif built.timeout == USUAL_TIMEOUT:
            said = f"Step `{step.name}` has no `timeout` of its own; each attempt may take 5m."
            yield Finding(_at(place, "name"), said, "Add the time it should need at most.")


def _timeout_that_never_comes(spec: SpecBlock) -> Iterator[Finding]:
    """Section 3.4: the workflow's timeout overrides any step's."""
    for place, step in enumerate(spec.steps):
        if spec.timeout is not None and step.timeout is not None and step.timeout >= spec.timeout:
            whole = format_duration(spec.timeout)
            said = f"`timeout` of step `{step.name}` never comes: the workflow as a whole has {whole}."
            yield Finding(_at(place, "timeout"), said, "Make it shorter, or the workflow's longer.")


def _notification_that_aborts(spec: SpecBlock, definition: Definition) -> Iterator[Finding]:
    """Guideline 2: use skip for non-critical steps; one that only tells people, and that nothing waits for, is one."""
    waited_for = {name for step in spec.steps for name in step.depends_on}
    for place, (step, built) in enumerate(zip(spec.steps, definition.steps, strict=True)):
        notifies = _says(step, TELLING)
        if notifies and step.name not in waited_for and built.on_failure is not OnFailure.SKIP and not is_gate(step):
            said = f"When the notification `{step.name}` fails, the whole workflow does."
            yield Finding(_at(place, "name"), said, "Add `onFailure: skip` if it is not critical.")


def _compensates(definition: Definition) -> bool:
    policies = {definition.on_failure, *(step.on_failure for step in definition.steps)}
    return OnFailure.COMPENSATE in policies


def _compensation_that_never_runs(spec: SpecBlock, definition: Definition) -> Iterator[Finding]:
    """Guideline 4: a failure path that is never taken."""
    if spec.compensation and not _compensates(definition):
        said = "`compensation` never runs: neither `failurePolicy` nor any `onFailure` asks for it."
        yield Finding(("spec", "compensation"), said, "Write `compensate` where a failure should undo.", key=True)


def _nothing_to_compensate(spec: SpecBlock, definition: Definition) -> Iterator[Finding]:
    """Guideline 4: a failure path that leads nowhere."""
    if spec.compensation or not _compensates(definition):
        return
    said, hint = "`compensate` has nothing to take back: there is no `compensation`.", "Add one per step that mutates."
    if spec.failure_policy == "compensate":
        yield Finding(("spec", "failurePolicy"), said, hint)
    for place, step in enumerate(spec.steps):
        if step.on_failure == "compensate":
            yield Finding(_at(place, "onFailure"), said, hint)


def _says(step: StepBlock, words: re.Pattern[str]) -> bool:
    """Whether the name or the action of a step has one of these words; the format has no other place to say it."""
    return words.search(f"{step.name} {step.action}") is not None


def _compensation_of_a_reader(spec: SpecBlock) -> Iterator[Finding]:
    """Guideline 3: compensations are for mutations only."""
    steps = {step.name: step for step in spec.steps}
    for place, entry in enumerate(spec.compensation):
        step = steps.get(entry.step)
        if step is not None and READING.match(step.action) and not _says(step, CHANGING):
            said = f"Step `{step.name}` seems to read only (`{step.action[:40]}`): there is nothing to compensate."
            yield Finding(("spec", "compensation", place, "step"), said, "Remove the entry if it changes nothing.")


def _irreversible_without_a_gate(spec: SpecBlock) -> Iterator[Finding]:
    """Guideline 7: use approval gates for irreversible actions."""
    before: dict[str, frozenset[str]] = {}
    waits = {step.name: frozenset(step.depends_on) for step in spec.steps}
    gates = frozenset(step.name for step in spec.steps if is_gate(step))
    for place, step in enumerate(spec.steps):
        if not is_gate(step) and _says(step, IRREVERSIBLE) and not (_ancestors(step.name, waits, before) & gates):
            said = f"Step `{step.name}` seems irreversible and no gate comes before it."
            hint = f"Let it depend on a step whose action begins with `{GATE}`."
            yield Finding(_at(place, "action"), said, hint)


def _ancestors(name: str, waits: Mapping[str, frozenset[str]], known: dict[str, frozenset[str]]) -> frozenset[str]:
    """Every step that comes before this one; iterative, because a chain may be long."""
    if name not in known:
        found: set[str] = set()
        queue = list(waits.get(name, ()))
        while queue:
            if (other := queue.pop()) not in found:
                found.add(other)
                queue += waits.get(other, ())
        known[name] = frozenset(found)
    return known[name]


def _many_steps(spec: SpecBlock) -> Iterator[Finding]:
    """Guideline 5: keep workflows under 10 steps."""
    if (count := len(spec.steps)) >= MANY_STEPS:
        said = f"{count} steps are hard to follow; keep a workflow under {MANY_STEPS}."
        yield Finding(("spec", "steps"), said, "Make several workflows of it, each a step with `workflow`.", key=True)


def _many_in_parallel(spec: SpecBlock) -> Iterator[Finding]:
    """The fan-out pattern: steps with the same dependencies run in parallel, and few can follow many of them."""
    beside = Counter(frozenset(step.depends_on) for step in spec.steps)
    for count in (count for count in beside.values() if count > MANY_PARALLEL):
        said = f"{count} steps start at once; more than {MANY_PARALLEL} side by side are hard to follow."
        yield Finding(("spec", "steps"), said, "Let some wait for others, or make several workflows.", key=True)


def _half_a_gate(spec: SpecBlock) -> Iterator[Finding]:
    """Guideline 7: irreversible actions need a gate before them."""
    for place, step in enumerate(spec.steps):
        if is_gate(step):
            yield from _gate(step, place)
        elif step.action.lstrip().casefold().startswith(GATE.casefold()):
            said = f"Step `{step.name}` is no gate: only `{GATE}` in capitals makes one, and its agent will be run."
            yield Finding(_at(place, "action"), said)


def _gate(step: StepBlock, place: int) -> Iterator[Finding]:
    if not prompt_of(step):
        yield Finding(_at(place, "action"), f"The gate `{step.name}` does not say what is to be approved.")
    if step.retry_policy is not None:
        said = "`retryPolicy` has no effect on a gate: nothing is tried there, so nothing is tried again."
        yield Finding(_at(place, "retryPolicy"), said, "Remove it.", key=True, ignored=True)
