"""The models of a `WorkflowV1` document, with the runtime metadata that seed 003 asks for: one model per block.

The models define the values of each key and the seed's defaults. `checks` checks relations between the parts, and
`build` makes the canonical definition. The published schema is generated from here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError, PydanticKnownError

from stepkeep.definition import bounds
from stepkeep.definition.findings import shown
from stepkeep.definition.native import written
from stepkeep.definition.native.validators import SeedAttempts, Word, given

TIERS = ("Auto", "Assisted", "HumanApprove", "ManualOnly")
"""From the least to the most strict."""

NEVER_RETRYABLE = ("validation", "policy_deny", "auth_deny", "business_conflict")

Tier = Literal["Auto", "Assisted", "HumanApprove", "ManualOnly"]
PortFamily = Literal[
    "FinanceAccounting",
    "PaymentsBilling",
    "ProcurementSpend",
    "HrisHcm",
    "Payroll",
    "CrmSales",
    "CustomerSupport",
    "ItsmItOps",
    "IamDirectory",
    "SecretsVaulting",
    "MarketingAutomation",
    "AdsPlatforms",
    "CommsCollaboration",
    "ProjectsWorkMgmt",
    "DocumentsEsign",
    "AnalyticsBi",
    "MonitoringIncident",
    "ComplianceGrc",
    "RoboticsActuation",
    "SoftwareDev",
]

_DAY_MS = 86_400_000


OPERATION_RULE = "an entity and a verb with a colon between them, like invoice:write"


def is_operation(value: str) -> bool:
    """Whether this is `entity:verb`.

    >>> is_operation("invoice:write"), is_operation("invoice.write")
    (True, False)
    """
    entity, _, verb = value.partition(":")
    return bool(entity and verb and ":" not in verb and bounds.HANDLER_NAME.fullmatch(value))


def _entity_and_verb(value: str) -> str:
    """`entity:verb`, valid as the name of the handler that runs it."""
    if not is_operation(value):
        said = {"value": shown(value), "rule": OPERATION_RULE}
        raise PydanticCustomError("operation", "cannot be {value}: write {rule}", said)
    return value


def _whole(value: Any) -> Any:
    # A choice of numbers would accept true for 1.
    if type(value) is not int:
        raise PydanticKnownError("int_type")
    return value


def _error_class(value: Any) -> Any:
    if value in NEVER_RETRYABLE:
        raise PydanticCustomError("never_retried", "cannot be {value}: it is never retried", {"value": shown(value)})
    return value


Name = Annotated[str, StringConstraints(pattern=f"^{bounds.NAME.pattern}$")]
Text = Annotated[str, StringConstraints(max_length=bounds.MAX_TEXT)]
Reference = Annotated[str, StringConstraints(min_length=1, max_length=1000)]
Operation = Annotated[
    str, AfterValidator(_entity_and_verb), Field(json_schema_extra={"pattern": r"^[^:\s]+:[^:\s]+$"}, examples=["a:b"])
]
WholeNumber = BeforeValidator(_whole)
Milliseconds = Annotated[int, Field(ge=1, le=7 * _DAY_MS)]
LongMilliseconds = Annotated[int, Field(ge=1, le=3_650 * _DAY_MS)]
ErrorName = Literal["timeout", "rate_limit", "5xx", "transport", "unknown"]
ErrorClass = Annotated[ErrorName, BeforeValidator(_error_class, json_schema_input_type=ErrorName)]
Schema = written.JsonSchema
CapabilityName = Annotated[str, StringConstraints(pattern=f"^{bounds.HANDLER_NAME.pattern}$")]


class ActionBlock(written.Block):
    model_config = ConfigDict(alias_generator=to_camel)


class ActionRetryPolicy(ActionBlock):
    """The retry policy of an action (section 3.1); `maxAttempts` counts the first execution too."""

    max_attempts: SeedAttempts = 3
    initial_backoff_ms: int = Field(default=1_000, ge=0, le=7 * _DAY_MS)
    backoff_multiplier: float = Field(default=2.0, ge=1, le=100)
    max_backoff_ms: int = Field(default=30_000, ge=0, le=7 * _DAY_MS)
    retryable_errors: list[ErrorClass] = Field(default=["timeout", "rate_limit", "5xx", "transport", "unknown"])


class Compensation(ActionBlock):
    """What an action passes to its compensation hook (section 4); the operation itself belongs to the capability."""

    compensation_input: Any = None
    timeout_ms: Milliseconds = 300_000


class Escalation(ActionBlock):
    """One step of ApprovalV1's escalation chain: this user may decide too, so many hours after the request."""

    user: Word
    after_hours: float = Field(gt=0, le=8_760)


class Action(ActionBlock):
    """One action of the workflow."""

    action_id: Name
    order: int = Field(ge=1, le=bounds.MAX_ORDER)
    port_family: PortFamily
    operation: Annotated[Operation | None, given(Operation)] = None
    capability: Annotated[Operation | None, given(Operation)] = None
    input_schema_ref: Annotated[Reference | None, given(Reference)] = None
    output_schema_ref: Annotated[Reference | None, given(Reference)] = None
    execution_tier_override: Annotated[Tier | None, given(Tier)] = None
    inputs: Any = None
    depends_on: Annotated[list[str] | None, given(list[str])] = None
    retry_policy: ActionRetryPolicy = ActionRetryPolicy()
    timeout_ms: Milliseconds = 300_000
    completion_mode: Annotated[Literal["Auto", "ManualOnly"] | None, given(Literal["Auto", "ManualOnly"])] = None
    completion_deadline_ms: Annotated[LongMilliseconds | None, given(LongMilliseconds)] = None
    approval_deadline_ms: Annotated[LongMilliseconds | None, given(LongMilliseconds)] = None
    approval_assignee: Annotated[Word | None, given(Word)] = None
    approval_escalation: list[Escalation] = Field(default=[], max_length=20)
    compensation: Annotated[Compensation | None, given(Compensation)] = None

    @property
    def handler(self) -> str:
        """The operation to run; a capability alone is its own operation."""
        return self.operation or self.capability or ""


class ActionEdge(ActionBlock):
    """`to` starts only after `from` has succeeded."""

    from_: str = Field(alias="from")
    to: str


class Safety(ActionBlock):
    """What is known about the safety of a capability."""

    idempotent: bool
    supports_compensation: bool = False
    supports_dry_run: bool = False
    supports_rollback: bool = False
    requires_approval: bool = False
    default_tier: Tier = "Auto"


class Capability(ActionBlock):
    """An entry of the capability matrix: the safety of an operation, and the operation that undoes it."""

    safety: Safety
    side_effecting: Annotated[bool | None, given(bool)] = None
    input_schema: Annotated[Schema | None, given(Schema)] = None
    output_schema: Annotated[Schema | None, given(Schema)] = None
    compensation_operation: Annotated[Operation | None, given(Operation)] = None
    compensation_input_schema: Annotated[Schema | None, given(Schema)] = None


class SodConstraint(ActionBlock):
    """A constraint on the people of a run (separation of duties)."""

    kind: Literal[
        "MakerChecker",
        "DistinctApprovers",
        "IncompatibleDuties",
        "HazardousZoneNoSelfApproval",
        "SafetyClassifiedZoneDualApproval",
        "RemoteEstopRequesterSeparation",
        "SpecialistApproval",
    ]
    minimum_approvers: Annotated[int | None, given(int)] = Field(default=None, ge=1, le=bounds.MAX_QUORUM)
    duty_keys: list[Name] = Field(default=[])
    required_roles: list[Word] = Field(default=[])
    rationale: Text = ""


class WorkflowV1(ActionBlock):
    """A workflow of actions."""

    schema_version: Annotated[Literal[1, 2], WholeNumber]
    workflow_id: Name
    workspace_id: Word
    name: Annotated[str, StringConstraints(min_length=1, max_length=bounds.MAX_TEXT)]
    description: Text = ""
    version: int = Field(ge=1, le=bounds.MAX_VERSION)
    active: bool
    execution_tier: Tier
    actions: list[Action] = Field(min_length=1, max_length=bounds.MAX_STEPS)
    edges: Annotated[list[ActionEdge] | None, given(list[ActionEdge])] = None
    capabilities: Annotated[dict[CapabilityName, Capability] | None, given(dict[CapabilityName, Capability])] = None
    sod_constraints: list[SodConstraint] = Field(default=[])


def tier_of(workflow_tier: Tier, action: Action, capability: Capability | None) -> Tier:
    """The strictest tier that is requested."""
    asked: list[Tier] = [workflow_tier, action.execution_tier_override or "Auto"]
    if capability is not None:
        asked += [capability.safety.default_tier, "HumanApprove" if capability.safety.requires_approval else "Auto"]
    return max(asked, key=TIERS.index)


def needs_approval(tier: Tier, capability: Capability | None) -> bool:
    """Whether the action waits for an approval before it runs; a stricter tier does not drop the requirement."""
    return tier == "HumanApprove" or (capability is not None and capability.safety.requires_approval)


def is_manual(tier: Tier, action: Action) -> bool:
    """Whether a person completes the action by hand."""
    return tier == "ManualOnly" or action.completion_mode == "ManualOnly"


def is_side_effecting(capability: Capability | None) -> bool:
    """The side effect from the capability's metadata; a capability with a compensation has one."""
    if capability is None:
        return False
    return capability.side_effecting or capability.compensation_operation is not None
