"""Checks a workflow resource beyond its shape: gates, compensations, policies, names of agents.

Each check yields findings and continues. Unknown keys are told with what is meant, and warnings come last.
`definition.native.graph` checks the graph. The front end passes every step and compensation that is valid on its own,
so that one mistake hides no other.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, get_args

from stepkeep.definition import bounds
from stepkeep.definition.durations import format_duration
from stepkeep.definition.expressions.json_schema import schema_findings
from stepkeep.definition.expressions.template_text import OPENING
from stepkeep.definition.findings import LOAD_IT, MAX_PROBLEMS, NOT_EVALUATED, Finding, Path, did_you_mean
from stepkeep.definition.native.lint import MANY_STEPS
from stepkeep.definition.python.registry import Registry
from stepkeep.dialects.ioa.written import (
    CompensationBlock,
    IoaBlock,
    IoaStepBlock,
    RetryPolicyBlock,
    SpecBlock,
    WorkflowResource,
)
from stepkeep.kernel.definition import Definition, StepDefinition
from stepkeep.kernel.machine.states import OnFailure

GATE = "GATE:"
"""The prefix of an action that is an approval gate: no worker runs it, people decide."""

OF_AGENTS = {
    "agent": "agent",
    "action": "action",
    "retry_policy": "retryPolicy",
    "input_schema": "inputSchema",
    "output_schema": "outputSchema",
}
"""What only an agent's step has, by the names of the model and of the format."""

Steps = Mapping[Path, IoaStepBlock]
Compensations = Mapping[Path, CompensationBlock]

MAX_HINTS = 20
"""Limit on suggestions: finding the nearest of ten thousand names takes time."""


def is_gate(step: IoaStepBlock) -> bool:
    return step.action.lstrip().startswith(GATE)


def prompt_of(step: IoaStepBlock) -> str:
    """The question of a gate."""
    return step.action.lstrip().removeprefix(GATE).strip()


def check_steps(steps: Steps) -> Iterator[Finding]:
    """Every problem of single steps."""
    for path, step in steps.items():
        yield from _kind(step, path)
        yield from _plain(step.action, (*path, "action"))
        most = bounds.STEP_TIMEOUT[1]
        is_attempt = not is_gate(step) and step.workflow is None
        if is_attempt and step.timeout is not None and step.timeout > most:
            said = f"`timeout` must be at most {format_duration(most)}; only a gate or a workflow may wait longer."
            yield Finding((*path, "timeout"), said)
        yield from _schemas(step, path)
        if step.retry_policy is not None:
            yield from _retry_policy(step.retry_policy, (*path, "retryPolicy"))


def _kind(step: IoaStepBlock, path: Path) -> Iterator[Finding]:
    """A step has an agent and an action, or it is another workflow."""
    given = step.model_fields_set
    if step.workflow is None:
        for key in ("agent", "action"):
            if key not in given:
                yield Finding(path, f"`{key}` is missing.", f"Add `{key}: …`, or start another `workflow`.")
        return
    for name, key in OF_AGENTS.items():
        if name in given:
            said = f"`{key}` means nothing for a step that starts a `workflow`."
            yield Finding((*path, key), said, "Write it at the steps of that workflow.", key=True)


def check_compensation(entries: Compensations, steps: Steps, names: set[str]) -> Iterator[Finding]:
    """Each entry undoes one step that exists and has a handler."""
    gates = {step.name for step in steps.values() if is_gate(step)}
    children = {step.name for step in steps.values() if step.workflow is not None}
    seen: set[str] = set()
    hints = MAX_HINTS
    for path, entry in entries.items():
        yield from _plain(entry.action, (*path, "action"))
        if entry.action.lstrip().startswith(GATE):
            said = "A compensation cannot wait for approval: an undo that began is finished."
            yield Finding((*path, "action"), said, "Say what the agent is to do.")
        if entry.step not in names:
            hint = did_you_mean(entry.step, names) if hints > 0 else ""
            hints -= 1
            yield Finding((*path, "step"), f"There is no step `{entry.step}` to compensate.", hint)
        elif entry.step in seen:
            said = f"Step `{entry.step}` already has a compensation."
            yield Finding((*path, "step"), said, "Let one action take back all of it.")
        elif entry.step in gates:
            yield Finding((*path, "step"), f"`{entry.step}` is a gate; there is nothing to take back.", "Remove this.")
        elif entry.step in children:
            said = f"`{entry.step}` is a workflow, which takes itself back by its own compensation."
            yield Finding((*path, "step"), said, "Remove this.")
        seen.add(entry.step)


def check_policy(policy: object) -> Iterator[Finding]:
    """The schema has a workflow-level `retry` whose meaning no text defines, so it is refused."""
    if policy == "retry":
        said = "`failurePolicy: retry` is not supported: a whole workflow is not tried again, its steps are."
        hint = "Write `retryPolicy` on the steps, and abort or compensate here."
        yield Finding(("spec", "failurePolicy"), said, hint)


def check_agents(steps: Steps, entries: Compensations, handlers: Registry) -> Iterator[Finding]:
    """Whether the agents of the steps are registered."""
    named = [(path, step.agent) for path, step in steps.items() if not is_gate(step) and step.workflow is None]
    named += [(path, entry.agent) for path, entry in entries.items()]
    for path, agent in named:
        if handlers.agent(agent) is None:
            hint = did_you_mean(agent, handlers.agents) or LOAD_IT
            yield Finding((*path, "agent"), f"There is no agent `{agent}`.", hint)


def _schemas(step: IoaStepBlock, path: Path) -> Iterator[Finding]:
    for key, schema in (("inputSchema", step.input_schema), ("outputSchema", step.output_schema)):
        if schema is None:
            continue
        if step.workflow is not None:
            continue
        if is_gate(step):
            yield Finding((*path, key), f"`{key}` means nothing for a gate.", "Remove it.", key=True)
        else:
            yield from schema_findings(schema, (*path, key))


def _retry_policy(policy: RetryPolicyBlock, path: Path) -> Iterator[Finding]:
    if isinstance(policy.backoff, int) and policy.initial_delay is not None:
        said = "The delay is given twice: as `backoff` and as `initialDelay`."
        yield Finding((*path, "initialDelay"), said, "Keep one, or name a strategy in `backoff`.", key=True)
        return
    first = policy.backoff if isinstance(policy.backoff, int) else policy.initial_delay
    if first is not None and policy.max_delay is not None and policy.max_delay < first:
        said = f"`maxDelay` is less than the first delay, {format_duration(first)}."
        yield Finding((*path, "maxDelay"), said, "Make it longer, or leave it out.")


def _plain(text: str, path: Path) -> Iterator[Finding]:
    if OPENING in text:
        said = f"`{path[-1]}` is taken as it is written."
        yield Finding(path, said, NOT_EVALUATED)


# -- lint ----------------------------------------------------------------------------------------------------------
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


def _says(step: IoaStepBlock, words: re.Pattern[str]) -> bool:
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


def _gate(step: IoaStepBlock, place: int) -> Iterator[Finding]:
    if not prompt_of(step):
        yield Finding(_at(place, "action"), f"The gate `{step.name}` does not say what is to be approved.")
    if step.retry_policy is not None:
        said = "`retryPolicy` has no effect on a gate: nothing is tried there, so nothing is tried again."
        yield Finding(_at(place, "retryPolicy"), said, "Remove it.", key=True, ignored=True)


# -- keys ----------------------------------------------------------------------------------------------------------
CLOSE = 0.8


def check_keys(data: Any) -> tuple[list[Finding], list[Finding]]:
    """Problems and warnings about unknown keys anywhere in the data."""
    problems: list[Finding] = []
    warnings: list[Finding] = []
    for path, key, known in _unknown(data, WorkflowResource, ()):
        meant = _meant(key, known)
        said, hint = f"There is no key `{key}` here.", f"Did you mean `{meant}`?" if meant else ""
        if meant or not path:
            problems.append(Finding((*path, key), said, hint or f"Known keys: {', '.join(known)}.", key=True))
        else:
            warnings.append(Finding((*path, key), f"{said[:-1]}; it has no effect.", key=True, ignored=True))
        if len(problems) > MAX_PROBLEMS or len(warnings) > MAX_PROBLEMS:
            break
    return problems, warnings


def _unknown(data: Any, block: type[IoaBlock], path: Path) -> Iterator[tuple[Path, str, list[str]]]:
    if not isinstance(data, dict):
        return
    fields = {field.alias or name: field for name, field in block.model_fields.items()}
    for key, value in data.items():
        if key not in fields:
            yield path, str(key), list(fields)
            continue
        inner = _inner(fields[key].annotation)
        if inner is None:
            continue
        if isinstance(value, list):
            for place, item in enumerate(value):
                yield from _unknown(item, inner, (*path, key, place))
        else:
            yield from _unknown(value, inner, (*path, key))


def _inner(annotation: Any) -> type[IoaBlock] | None:
    if isinstance(annotation, type) and issubclass(annotation, IoaBlock):
        return annotation
    return next((found for part in get_args(annotation) if (found := _inner(part))), None)


def _meant(key: str, known: list[str]) -> str | None:
    folded = {_folded(name): name for name in known}
    close = get_close_matches(_folded(key[:128]), folded, n=1, cutoff=CLOSE)
    return folded[close[0]] if close else None


def _folded(key: str) -> str:
    return key.casefold().replace("_", "").replace("-", "")
