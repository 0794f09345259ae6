"""The front end of `linear`: an ordered list of step types in, the kernel's definition or all problems out.

Every default is made explicit. It executes nothing; the plan is always a sequence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StringConstraints
from pydantic_core import PydanticCustomError

from stepkeep.definition import bounds
from stepkeep.definition.expressions.template_text import WHOLE_INPUT
from stepkeep.definition.findings import Finding, Path
from stepkeep.definition.native.build import GRACE
from stepkeep.definition.native.validators import SeedAttempts
from stepkeep.definition.native.written import Block, HandlerName, Name, Text
from stepkeep.definition.python.registry import Registry
from stepkeep.dialects.chains import StepWord, check_known, distinct, placement
from stepkeep.dialects.format import Format, FormatReading, listed
from stepkeep.kernel.definition import Backoff, Definition, Dependency, Handler, Retry, StepDefinition
from stepkeep.kernel.machine.states import OnFailure, StepState

LONGEST_BACKOFF = bounds.DELAY[1] // bounds.MILLISECOND
LONGEST_TIMEOUT = bounds.STEP_TIMEOUT[1] // bounds.MILLISECOND
LONGEST_LEASE = bounds.LEASE[1] // bounds.SECOND


def _widened(value: Any) -> Any:
    if isinstance(value, str):
        return {"stepType": value}
    if not isinstance(value, dict):
        raise PydanticCustomError("step", "must be a step type, or a mapping with `stepType`")
    return value


class LinearRetryPolicy(Block):
    """The number of executions of a step, and the backoff between them."""

    # A step's missing values come from the workflow, so these defaults only document the schema.
    max_attempts: SeedAttempts = Field(default=10, alias="maxAttempts")
    base_backoff_ms: int = Field(default=1_000, alias="baseBackoffMs", ge=0, le=LONGEST_BACKOFF)
    max_backoff_ms: int = Field(default=300_000, alias="maxBackoffMs", ge=0, le=LONGEST_BACKOFF)


class LinearStep(Block):
    """One step: its type, which also names its handler unless another is given."""

    step_type: StepWord = Field(alias="stepType")
    handler: HandlerName | None = None
    retry_policy: LinearRetryPolicy = Field(default=LinearRetryPolicy(), alias="retryPolicy")
    timeout_ms: int = Field(default=300_000, alias="timeoutMs", ge=1, le=LONGEST_TIMEOUT)
    description: Text = ""


Step = Annotated[LinearStep, BeforeValidator(_widened, json_schema_input_type=StepWord | LinearStep)]


class LinearBlock(Block):
    """A strictly linear workflow."""

    workflow_type: Name = Field(alias="workflowType")
    workflow_version: int = Field(default=1, alias="workflowVersion", ge=1, le=bounds.MAX_VERSION)
    description: Annotated[str, StringConstraints(max_length=bounds.MAX_TEXT)] = ""
    retry_policy: LinearRetryPolicy = Field(default=LinearRetryPolicy(), alias="retryPolicy")
    lease_seconds: int = Field(default=30, alias="leaseSeconds", ge=1, le=LONGEST_LEASE)
    steps: list[Step] = Field(min_length=1, max_length=bounds.MAX_STEPS)


def amend(schema: dict[str, Any]) -> None:
    """Optional values are left out of a file, not written as null."""
    step = schema["$defs"]["LinearStep"]["properties"]
    step["handler"] = step["handler"]["anyOf"][0]
    for holder in (schema["properties"], step):
        holder["retryPolicy"] = {"$ref": f"#/$defs/{LinearRetryPolicy.__name__}"}


def build(written: LinearBlock, handlers: Registry | None = None) -> Definition:
    """The canonical definition of a workflow that passed every check."""
    names = distinct([step.step_type for step in written.steps])
    steps = [
        _step(step, name, seq, names[seq - 1] if seq else None, written.retry_policy, handlers)
        for seq, (step, name) in enumerate(zip(written.steps, names, strict=True))
    ]
    return Definition(
        name=written.workflow_type,
        version=written.workflow_version,
        dialect="linear",
        description=written.description,
        steps=tuple(steps),
        timeout=None,
        on_failure=OnFailure.ABORT,
        lease=written.lease_seconds * bounds.SECOND,
        grace=GRACE,
        about={"stepTypes": {name: step.step_type for step, name in zip(written.steps, names, strict=True)}},
    )


def _step(
    step: LinearStep, name: str, seq: int, before: str | None, policy: LinearRetryPolicy, handlers: Registry | None
) -> StepDefinition:
    # Only DONE activates the next step: the format has no skip.
    after = () if before is None else (Dependency(step=before, allow=(StepState.SUCCEEDED,)),)
    handler = step.handler or step.step_type
    return StepDefinition(
        name=name,
        order=seq,
        executor=Handler(name=handler),
        inputs=WHOLE_INPUT,
        depends_on=after,
        timeout=step.timeout_ms * bounds.MILLISECOND,
        retry=_retry(policy.model_copy(update=_given(step.retry_policy))),
        on_failure=OnFailure.ABORT,
        description=step.description,
        **placement(handler, handlers),
    )


def _given(policy: LinearRetryPolicy) -> dict[str, int]:
    return {name: getattr(policy, name) for name in policy.model_fields_set}


def _retry(policy: LinearRetryPolicy) -> Retry:
    """min(base × 2^(n-1), max) before try n+1."""
    return Retry(
        max_attempts=policy.max_attempts,
        backoff=Backoff.EXPONENTIAL,
        initial=policy.base_backoff_ms * bounds.MILLISECOND,
        factor=2.0,
        max=policy.max_backoff_ms * bounds.MILLISECOND,
    )


def _backoffs(data: dict[str, Any]) -> Iterator[Finding]:
    """A cap below the base would contradict it; a policy is checked together with its defaults."""
    base = data.get("retryPolicy")
    policies: list[tuple[Path, Any, Any]] = [(("retryPolicy",), base, None)]
    for place, step in enumerate(listed(data, ("steps",))):
        own = step.get("retryPolicy") if isinstance(step, dict) else None
        policies.append((("steps", place, "retryPolicy"), own, base))
    for path, policy, below in policies:
        if not isinstance(policy, dict):
            continue
        merged = {
            "baseBackoffMs": 1_000,
            "maxBackoffMs": 300_000,
            **(below if isinstance(below, dict) else {}),
            **policy,
        }
        first, most = merged["baseBackoffMs"], merged["maxBackoffMs"]
        if type(first) is int and type(most) is int and first > most:
            said = f"`baseBackoffMs` is {first} and more than `maxBackoffMs`, {most}."
            yield Finding(path, said, "Write a cap that is not below the first pause.")


def _handlers(data: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    for place, step in enumerate(listed(data, ("steps",))):
        path: Path = ("steps", place)
        if isinstance(step, dict):
            key = "handler" if isinstance(step.get("handler"), str) else "stepType"
            path, step = (*path, key), step.get(key)
        if isinstance(step, str) and step:
            yield path, step


def _problems(reading: FormatReading[LinearBlock]) -> Iterator[Finding]:
    yield from _backoffs(reading.data)
    if reading.handlers is not None:
        yield from check_known(_handlers(reading.data), reading.handlers)


FRONT = Format(
    model=LinearBlock,
    title="Stepkeep workflow, as a linear workflow (seed 002)",
    is_a="A linear workflow is a mapping that begins with `workflowType: NAME`.",
    claims=lambda data: "workflowType" in data,
    problems=_problems,
    build=lambda written, reading: build(written, reading.handlers),
    amend=amend,
)
"""Workflow definitions of seed 002. No other format calls a workflow's name its type."""
