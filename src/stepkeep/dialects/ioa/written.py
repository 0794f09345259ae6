"""The models of a workflow resource (`apiVersion: ioa.dev/v0.2`, `kind: Workflow`): one per block.

The models define the values of each known key. Unknown keys are left to `keys`, because the format allows them below
the top level. `build` fills in defaults that depend on other parts. The published schema is generated from here.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError

from stepkeep.definition import bounds
from stepkeep.definition.durations import InvalidDuration, format_duration, parse_duration
from stepkeep.definition.findings import shown
from stepkeep.definition.native.validators import SeedRetries, Word, filled, given, short, within
from stepkeep.definition.native.written import JsonSchema

API_VERSION = "ioa.dev/v0.2"
KIND = "Workflow"
STRATEGIES = ("constant", "linear", "exponential")

RESOURCE_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")
_VERSION = re.compile(r"v?[0-9]{1,10}(\.[0-9]{1,3}){0,2}", re.ASCII)
RESOURCE_NAME_RULE = "lower-case letters, digits and `-`, starting with a letter, at most 63 characters"

Text = Annotated[str, StringConstraints(min_length=1, max_length=bounds.MAX_TEXT)]
Name = Annotated[str, StringConstraints(pattern=f"^{bounds.NAME.pattern}$")]
AgentName = Annotated[str, StringConstraints(pattern=f"^{bounds.HANDLER_NAME.pattern}$")]
DurationText = Annotated[str, Field(examples=["30s", "5m", "24h", "1h30m"])]


def _resource_name(value: Any) -> Any:
    if isinstance(value, str) and not RESOURCE_NAME.fullmatch(value):
        said = {"value": shown(value), "rule": RESOURCE_NAME_RULE}
        raise PydanticCustomError("resource_name", "cannot be {value}: use {rule}", said)
    return value


def _backoff(value: Any) -> Any:
    """One of the strategies by name, or a duration, which is the delay of the constant one (microseconds)."""
    if not isinstance(value, str) or value in STRATEGIES:
        return value
    try:
        found = parse_duration(value)
    except InvalidDuration:
        found = -1
    if not bounds.DELAY[0] <= found <= bounds.DELAY[1]:
        known = f"{', '.join(STRATEGIES)} or a duration of at most {format_duration(bounds.DELAY[1])}"
        raise PydanticCustomError("backoff", "must be {known}, not {value}", {"known": known, "value": shown(value)})
    return found


def _version(value: Any) -> Any:
    """A version as it was written, if it has a number."""
    number = version_number(filled(value)) if isinstance(value, int | str) and not isinstance(value, bool) else None
    if number is None:
        said = "must be a whole number or like 1.4.2, each part at most 999, not {value}"
        raise PydanticCustomError("version", said, {"value": shown(value)})
    return value


def version_number(written: int | str) -> int | None:
    """`3`, `"3"` and `v3` are 3; each part of `1.4.2` has three digits, so that later versions are higher."""
    if isinstance(written, int):
        return written if 1 <= written <= bounds.MAX_VERSION else None
    if not _VERSION.fullmatch(written):
        return None
    parts = [int(part) for part in written.removeprefix("v").split(".")]
    if len(parts) == 1:
        return version_number(parts[0])
    major, minor, patch = (*parts, 0)[:3]
    if max(parts) > 999:
        return None
    return version_number((major * 1000 + minor) * 1000 + patch)


def _owner(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else filled(value)


class IoaBlock(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class OwnerBlock(IoaBlock):
    """The owner of the workflow."""

    name: Text
    role: Annotated[Text | None, given(Text)] = None


class MetadataBlock(IoaBlock):
    """The name and the owner of the workflow."""

    name: Annotated[
        str, BeforeValidator(_resource_name), Field(json_schema_extra={"pattern": f"^{RESOURCE_NAME.pattern}$"})
    ]
    owner: Annotated[OwnerBlock | None, BeforeValidator(_owner, json_schema_input_type=str | OwnerBlock)] = None
    labels: dict[Word, Annotated[str, StringConstraints(max_length=bounds.MAX_TEXT)]] = {}
    annotations: dict[Word, Annotated[str, StringConstraints(max_length=bounds.MAX_TEXT)]] = {}
    version: Annotated[int | str, BeforeValidator(_version, json_schema_input_type=int | str)] = 1
    created_at: Annotated[Word | None, given(Word)] = Field(default=None, alias="createdAt")
    updated_at: Annotated[Word | None, given(Word)] = Field(default=None, alias="updatedAt")


class IoaTriggerBlock(IoaBlock):
    """What starts the workflow."""

    event: Annotated[Text | None, given(Text)] = None
    condition: Annotated[Text | None, given(Text)] = None
    schedule: Annotated[Text | None, given(Text)] = None


class RetryPolicyBlock(IoaBlock):
    """The retry policy of a step (section 3.2)."""

    max_retries: SeedRetries = Field(default=3, alias="maxRetries")
    backoff: Annotated[
        Literal["constant", "linear", "exponential"] | int,
        BeforeValidator(_backoff, json_schema_input_type=Literal["constant", "linear", "exponential"] | DurationText),
    ] = "exponential"
    initial_delay: Annotated[int | None, within(bounds.DELAY, DurationText)] = Field(default=None, alias="initialDelay")
    max_delay: Annotated[int | None, within(bounds.DELAY, DurationText)] = Field(default=None, alias="maxDelay")


class SubWorkflowBlock(IoaBlock):
    """Another published workflow that a step starts and waits for (section 6, guideline 5)."""

    name: Name
    version: Annotated[int | None, given(int)] = Field(default=None, ge=1, le=bounds.MAX_VERSION)


class IoaStepBlock(IoaBlock):
    """One step: an agent and its action, a question to people (`GATE:` begins its action), or another workflow."""

    name: Name
    # `checks` asks for both of a step without `workflow`.
    agent: AgentName = ""
    action: Text = ""
    workflow: Annotated[SubWorkflowBlock | None, short("name", SubWorkflowBlock)] = None
    depends_on: list[str] = Field(default=[], alias="dependsOn")
    timeout: Annotated[int | None, within(bounds.DEADLINE, DurationText)] = None
    input_schema: Annotated[JsonSchema | None, given(JsonSchema)] = Field(default=None, alias="inputSchema")
    output_schema: Annotated[JsonSchema | None, given(JsonSchema)] = Field(default=None, alias="outputSchema")
    retry_policy: Annotated[RetryPolicyBlock | None, given(RetryPolicyBlock)] = Field(default=None, alias="retryPolicy")
    on_failure: Annotated[
        Literal["abort", "skip", "compensate"] | None, given(Literal["abort", "skip", "compensate"])
    ] = Field(default=None, alias="onFailure")


class CompensationBlock(IoaBlock):
    """What undoes a completed step (section 4)."""

    step: str
    action: Text
    agent: AgentName


class SpecBlock(IoaBlock):
    """What the workflow does."""

    description: Text
    domains_involved: list[Word] = Field(alias="domainsInvolved", min_length=1, max_length=1000)
    trigger: Annotated[IoaTriggerBlock | None, given(IoaTriggerBlock)] = None
    steps: list[IoaStepBlock] = Field(min_length=1, max_length=bounds.MAX_STEPS)
    compensation: list[CompensationBlock] = Field(default=[], max_length=bounds.MAX_STEPS)
    timeout: Annotated[int | None, within(bounds.RUN_TIMEOUT, DurationText)] = None
    failure_policy: Annotated[
        Literal["compensate", "retry", "abort"] | None,
        BeforeValidator(filled, json_schema_input_type=Literal["compensate", "abort"]),
    ] = Field(default=None, alias="failurePolicy")


class WorkflowResource(IoaBlock):
    """A workflow in the ioa dialect."""

    api_version: Literal["ioa.dev/v0.2"] = Field(alias="apiVersion")
    kind: Literal["Workflow"]
    metadata: MetadataBlock
    spec: SpecBlock
    status: Any = Field(default=None, description="Written where the workflow runs; ignored in a definition.")
