"""Checks a workflow resource beyond its shape: gates, compensations, policies, names of agents.

Each check yields findings and continues. `definition.native.graph` checks the graph, `keys` unknown keys. The front end
passes every step and compensation that is valid on its own, so that one mistake hides no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stepkeep.definition import bounds
from stepkeep.definition.durations import format_duration
from stepkeep.definition.expressions.json_schema import schema_findings
from stepkeep.definition.expressions.template_text import OPENING
from stepkeep.definition.findings import LOAD_IT, NOT_EVALUATED, Finding, Path, did_you_mean
from stepkeep.definition.python.registry import Registry
from stepkeep.dialects.ioa.written import CompensationBlock, RetryPolicyBlock, StepBlock

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

Steps = Mapping[Path, StepBlock]
Compensations = Mapping[Path, CompensationBlock]

MAX_HINTS = 20
"""Limit on suggestions: finding the nearest of ten thousand names takes time."""


def is_gate(step: StepBlock) -> bool:
    return step.action.lstrip().startswith(GATE)


def prompt_of(step: StepBlock) -> str:
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


def _kind(step: StepBlock, path: Path) -> Iterator[Finding]:
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


def _schemas(step: StepBlock, path: Path) -> Iterator[Finding]:
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
