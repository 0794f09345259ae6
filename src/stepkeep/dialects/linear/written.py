"""The models of seed 002's workflow definition: strict, unknown keys refused.

`front` fills in the defaults and names the steps.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StringConstraints
from pydantic_core import PydanticCustomError

from stepkeep.definition import bounds
from stepkeep.definition.native.validators import SeedAttempts
from stepkeep.definition.native.written import Block, HandlerName, Name, Text
from stepkeep.dialects.chains import StepWord

LONGEST_BACKOFF = bounds.DELAY[1] // bounds.MILLISECOND
LONGEST_TIMEOUT = bounds.STEP_TIMEOUT[1] // bounds.MILLISECOND
LONGEST_LEASE = bounds.LEASE[1] // bounds.SECOND


def _widened(value: Any) -> Any:
    if isinstance(value, str):
        return {"stepType": value}
    if not isinstance(value, dict):
        raise PydanticCustomError("step", "must be a step type, or a mapping with `stepType`")
    return value


class RetryPolicy(Block):
    """The number of executions of a step, and the backoff between them."""

    # A step's missing values come from the workflow, so these defaults only document the schema.
    max_attempts: SeedAttempts = Field(default=10, alias="maxAttempts")
    base_backoff_ms: int = Field(default=1_000, alias="baseBackoffMs", ge=0, le=LONGEST_BACKOFF)
    max_backoff_ms: int = Field(default=300_000, alias="maxBackoffMs", ge=0, le=LONGEST_BACKOFF)


class LinearStep(Block):
    """One step: its type, which also names its handler unless another is given."""

    step_type: StepWord = Field(alias="stepType")
    handler: HandlerName | None = None
    retry_policy: RetryPolicy = Field(default=RetryPolicy(), alias="retryPolicy")
    timeout_ms: int = Field(default=300_000, alias="timeoutMs", ge=1, le=LONGEST_TIMEOUT)
    description: Text = ""


Step = Annotated[LinearStep, BeforeValidator(_widened, json_schema_input_type=StepWord | LinearStep)]


class LinearBlock(Block):
    """A strictly linear workflow."""

    workflow_type: Name = Field(alias="workflowType")
    workflow_version: int = Field(default=1, alias="workflowVersion", ge=1, le=bounds.MAX_VERSION)
    description: Annotated[str, StringConstraints(max_length=bounds.MAX_TEXT)] = ""
    retry_policy: RetryPolicy = Field(default=RetryPolicy(), alias="retryPolicy")
    lease_seconds: int = Field(default=30, alias="leaseSeconds", ge=1, le=LONGEST_LEASE)
    steps: list[Step] = Field(min_length=1, max_length=bounds.MAX_STEPS)


def amend(schema: dict[str, Any]) -> None:
    """Optional values are left out of a file, not written as null."""
    step = schema["$defs"]["LinearStep"]["properties"]
    step["handler"] = step["handler"]["anyOf"][0]
    for holder in (schema["properties"], step):
        holder["retryPolicy"] = {"$ref": "#/$defs/RetryPolicy"}
