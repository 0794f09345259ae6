"""Advice on a correct definition that may still cause trouble: seed 000 section 6, one function per guideline.

Warnings stop nothing. They consider written values, not defaults. `stepkeep check` shows them, and so does publication.
"""

from __future__ import annotations

from collections.abc import Iterator

from stepkeep.definition.findings import Finding, Path
from stepkeep.definition.graph import Ancestry
from stepkeep.definition.written import WorkflowBlock
from stepkeep.kernel.definition import Definition, Effect, StepDefinition
from stepkeep.kernel.states import OnFailure, StepState

MANY_STEPS = 10


def lint(written: WorkflowBlock, definition: Definition, ancestry: Ancestry) -> list[Finding]:
    """All advice on one definition."""
    return [
        *_run_without_timeout(written),
        *_step_without_timeout(written, definition),
        *_wait_without_deadline(definition),
        *_many_steps(definition),
        *_write_without_undo(definition),
        *_irreversible_without_approval(definition, ancestry),
        *_gate_that_promises_more(definition),
        *_nothing_to_take_back(definition),
        *_failure_that_is_never_seen(definition),
    ]


def _at(number: int, *rest: str) -> Path:
    return ("steps", number, *rest)


def _run_without_timeout(written: WorkflowBlock) -> Iterator[Finding]:
    """Guideline 1: set timeouts for everything."""
    if written.timeout is None:
        said = "The workflow has no `timeout`: a run that is stuck stays so for ever."
        yield Finding(("workflow",), said, "Add one, for example `timeout: 1h`.", key=True)


def _step_without_timeout(written: WorkflowBlock, definition: Definition) -> Iterator[Finding]:
    """Guideline 1: set timeouts for everything."""
    for number, (step, built) in enumerate(zip(written.steps, definition.steps, strict=True)):
        said_by_handler = built.timeout != StepDefinition(name="", order=0).timeout
        if built.executor is not None and step.timeout is None and not said_by_handler:
            said = f"Step `{step.name}` has no `timeout` of its own; each attempt may take 5m."
            yield Finding(_at(number, "name"), said, "Add the time it should need at most.")


def _wait_without_deadline(definition: Definition) -> Iterator[Finding]:
    """Guideline 1, for waits on people and messages."""
    for number, step in enumerate(definition.steps):
        for key, waiting in (("approval", step.approval), ("wait", step.wait)):
            if waiting is not None and waiting.deadline is None:
                said = f"`{key}` of step `{step.name}` has no `deadline`: it may wait for ever."
                yield Finding(_at(number, key), said, "Add one, for example `deadline: 24h`.", key=True)
        if step.completion == "manual" and step.completion_deadline is None:
            said = f"The manual completion of step `{step.name}` has no `deadline`: it may wait for ever."
            hint = "Write `completion: {mode: manual, deadline: 24h}`."
            yield Finding(_at(number, "completion"), said, hint, key=True)


def _many_steps(definition: Definition) -> Iterator[Finding]:
    """Guideline 5: keep workflows under 10 steps."""
    if (count := len(definition.steps)) > MANY_STEPS:
        said = f"{count} steps are hard to follow; more than {MANY_STEPS} are better split."
        yield Finding(("steps",), said, "Make several workflows of it.", key=True)


def _write_without_undo(definition: Definition) -> Iterator[Finding]:
    """Guideline 3: compensations are for mutations, so a mutation needs one."""
    for number, step in enumerate(definition.steps):
        if step.effect is Effect.WRITE and step.undo is None:
            said = f"Step `{step.name}` changes something and has no `undo`: a rollback stays partial."
            hint = "Add one, or say `effect: irreversible`."
            yield Finding(_at(number, "effect"), said, hint, key=True)


def _irreversible_without_approval(definition: Definition, ancestry: Ancestry) -> Iterator[Finding]:
    """Guideline 7: use approval gates for irreversible actions."""
    gates = [step.name for step in definition.steps if step.approval is not None]
    for number, step in enumerate(definition.steps):
        guarded = any(ancestry.precedes(gate, step.name) for gate in gates)
        if step.effect is Effect.IRREVERSIBLE and not guarded:
            said = f"Step `{step.name}` cannot be taken back and nobody approves it."
            yield Finding(_at(number, "effect"), said, "Put an `approval` step before it.", key=True)


def _gate_that_promises_more(definition: Definition) -> Iterator[Finding]:
    """Guideline 7: roles and quorum of an approval are not enforced yet."""
    for number, step in enumerate(definition.steps):
        if step.approval is None:
            continue
        if step.approval.quorum > 1:
            said = f"The first decision settles `{step.name}`: its `quorum` of {step.approval.quorum} is not enforced."
            hint = f"For {step.approval.quorum} signatures, write as many `approval` steps."
            yield Finding((*_at(number, "approval"), "quorum"), said, hint, key=True)
        if step.approval.excluded:
            said = f"Anybody may decide `{step.name}`: who is named in `not` is not kept out."
            hint = "Let only the right people reach the command line or your own front."
            yield Finding((*_at(number, "approval"), "not"), said, hint, key=True)


def _nothing_to_take_back(definition: Definition) -> Iterator[Finding]:
    """Guideline 4: a failure path that leads nowhere."""
    if definition.on_failure is OnFailure.COMPENSATE and not any(step.undo for step in definition.steps):
        said = "`on_failure: compensate` has nothing to take back: no step has an `undo`."
        yield Finding(("on_failure",), said, "Add `undo` to the steps that change something.")


def _failure_that_is_never_seen(definition: Definition) -> Iterator[Finding]:
    """Guideline 4: a dependency that allows a failure which ends the run before it matters."""
    policies = {step.name: step.on_failure for step in definition.steps}
    for number, step in enumerate(definition.steps):
        for place, edge in enumerate(step.depends_on):
            if StepState.FAILED in edge.allow and policies[edge.step] is not OnFailure.CONTINUE:
                said = f"`{step.name}` never runs after `{edge.step}` has failed: that failure ends the run."
                path = (*_at(number, "depends_on"), place)
                yield Finding(path, said, f"Add `on_failure: continue` to `{edge.step}`.")
