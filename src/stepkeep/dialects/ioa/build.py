"""Builds the kernel's definition, with every default of this dialect made explicit.

Only this module applies the defaults that `defaults` documents. It takes blocks that passed every check and cannot
fail. The front end calls it.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from stepkeep.definition.expressions.conditions import own_output
from stepkeep.definition.expressions.template_text import WHOLE_INPUT
from stepkeep.definition.native.build import GRACE, LEASE, STEP_TIMEOUT
from stepkeep.definition.python.registry import Registry
from stepkeep.dialects.ioa import triggers
from stepkeep.dialects.ioa.checks import is_gate, prompt_of
from stepkeep.dialects.ioa.written import (
    CompensationBlock,
    IoaStepBlock,
    MetadataBlock,
    RetryPolicyBlock,
    SpecBlock,
    WorkflowResource,
    version_number,
)
from stepkeep.kernel import definition as kernel
from stepkeep.kernel.definition import SECOND, Backoff
from stepkeep.kernel.machine.states import Category, OnFailure, StepState

DIALECT = "ioa"

MAX_DELAY = 60 * SECOND
FIRST_DELAY = {Backoff.EXPONENTIAL: SECOND, Backoff.LINEAR: 5 * SECOND, Backoff.CONSTANT: 5 * SECOND}
"""Section 3.2: the initial delay of a strategy if none is written."""

ALWAYS_RETRIED = (Category.TRANSIENT,)
CONFIGURABLE = (Category.AGENT, Category.EXTERNAL, Category.TRANSIENT, Category.UNKNOWN)
"""Section 3.1: the categories that a written retryPolicy retries. A timeout is never among them."""

SATISFIED = (StepState.SUCCEEDED, StepState.SKIPPED)
"""A skipped step still satisfies its dependents; a fan-in handles missing results."""


def build(written: WorkflowResource, handlers: Registry | None = None) -> kernel.Definition:
    """The canonical definition. Registered agents add their own settings."""
    metadata, spec = written.metadata, written.spec
    version = version_number(metadata.version)
    assert version is not None
    policy = OnFailure(spec.failure_policy or "abort")
    undos = {entry.step: entry for entry in spec.compensation}
    return kernel.Definition(
        name=metadata.name,
        version=version,
        dialect=DIALECT,
        steps=tuple(
            _step(step, place + 1, policy, undos.get(step.name), handlers) for place, step in enumerate(spec.steps)
        ),
        description=spec.description,
        timeout=spec.timeout,
        on_failure=policy,
        hook_failure=kernel.HookFailure.STOP,
        lease=LEASE,
        grace=GRACE,
        labels=dict(sorted(metadata.labels.items())),
        trigger=None if spec.trigger is None else spec.trigger.model_dump(exclude_none=True),
        triggers=triggers.build(spec.trigger) or UNSET,
        about=_about(metadata, spec),
    )


def _about(metadata: MetadataBlock, spec: SpecBlock) -> dict[str, Any]:
    """Data that does not change how a run executes and is shown with it."""
    said: dict[str, Any] = {"domainsInvolved": list(spec.domains_involved)}
    if isinstance(metadata.version, str):
        said["version"] = metadata.version
    if metadata.owner is not None:
        said["owner"] = metadata.owner.model_dump(exclude_none=True)
    if metadata.annotations:
        said["annotations"] = dict(sorted(metadata.annotations.items()))
    gates = {step.name: step.agent for step in spec.steps if is_gate(step)}
    if gates:
        said["gates"] = gates
    return said


def _step(
    step: IoaStepBlock, order: int, policy: OnFailure, undo: CompensationBlock | None, handlers: Registry | None
) -> kernel.StepDefinition:
    common: dict[str, Any] = {
        "name": step.name,
        "order": order,
        "depends_on": tuple(kernel.Dependency(step=name, allow=SATISFIED) for name in step.depends_on),
        "on_failure": policy if step.on_failure is None else OnFailure(step.on_failure),
    }
    if is_gate(step):
        approval = kernel.Approval(prompt=prompt_of(step), deadline=step.timeout, on_deadline=kernel.OnDeadline.FAIL)
        return kernel.StepDefinition(approval=approval, **common)
    if (child := step.workflow) is not None:
        started = kernel.SubWorkflow(workflow=child.name, version=child.version or 0, deadline=step.timeout)
        common |= {"effect": kernel.Effect.WRITE, "undo": kernel.Undo(executor=kernel.UndoChild())}
        return kernel.StepDefinition(child=started, inputs=WHOLE_INPUT, **common)
    spec = handlers.agent(step.agent) if handlers is not None else None
    return kernel.StepDefinition(
        executor=kernel.Agent(name=step.agent, action=step.action),
        inputs=WHOLE_INPUT,
        timeout=step.timeout or (spec.timeout if spec else None) or STEP_TIMEOUT,
        retry=_retry(step.retry_policy, spec.retry if spec else None),
        effect=kernel.Effect.READ if undo is None else kernel.Effect.WRITE,
        undo=None if undo is None else _undo(undo, handlers),
        input_schema=UNSET if step.input_schema is None else step.input_schema,
        output_schema=UNSET if step.output_schema is None else step.output_schema,
        **common,
    )


def _undo(entry: CompensationBlock, handlers: Registry | None) -> kernel.Undo:
    spec = handlers.agent(entry.agent) if handlers is not None else None
    return kernel.Undo(
        executor=kernel.Agent(name=entry.agent, action=entry.action),
        inputs=own_output(entry.step),
        timeout=(spec.timeout if spec else None) or STEP_TIMEOUT,
        retry=kernel.UNDO_RETRY,
    )


def _retry(written: RetryPolicyBlock | None, said_by_agent: kernel.Retry | None) -> kernel.Retry:
    """The step's own policy, else its agent's, else three retries of transient failures."""
    if written is not None:
        return _policy(written, CONFIGURABLE)
    if said_by_agent is not None:
        return replace(said_by_agent, on=tuple(c for c in said_by_agent.on if c is not Category.TIMEOUT))
    return _policy(RetryPolicyBlock(), ALWAYS_RETRIED)


def _policy(written: RetryPolicyBlock, retried: tuple[Category, ...]) -> kernel.Retry:
    if isinstance(written.backoff, int):
        strategy, first = Backoff.CONSTANT, written.backoff
    else:
        strategy = Backoff(written.backoff)
        first = FIRST_DELAY[strategy] if written.initial_delay is None else written.initial_delay
    # The default cap must not cut a written delay; a written cap cuts the default delay.
    longest = max(MAX_DELAY, first) if written.max_delay is None else written.max_delay
    return kernel.Retry(
        max_attempts=written.max_retries + 1,
        backoff=strategy,
        initial=min(first, longest),
        factor=2.0,
        max=longest,
        on=retried,
        caps_asked=True,
    )
