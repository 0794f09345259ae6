"""The models of the native format: one strict model per block, unknown keys refused.

`build` fills in the defaults that depend on other parts. Short forms (a name for `{step: name}`, a text for `{event:
text}`) are expanded here. The published JSON Schema is generated from these models.

What a workflow says about the archives of its runs: which endings are archived, where, and how long runs are kept.

The native format as a JSON Schema, for editors and other programs: made from the models, never by hand.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError

from stepkeep.definition import bounds
from stepkeep.definition.expressions.template_text import OPENING
from stepkeep.definition.native.validators import Attempts, DurationText, Word, duration, filled, given, literal, within
from stepkeep.definition.native.validators import short as _short
from stepkeep.kernel.definition import Definition

KEY: Final = "archive"
FOREVER: Final = "forever"
FOLDER: Final = ".state/archive"

Ending = Literal["succeeded", "failed", "cancelled", "rolled_back"]
ENDINGS: Final = ("succeeded", "failed", "cancelled", "rolled_back")
IN_OTHER_WORDS: Final = {"completed": "succeeded"}
"""How a workstream names an ending."""


class ArchivePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The declared policy. `keep` is microseconds after the end by ending, or `forever`."""

    on: tuple[str, ...] = ENDINGS
    to: str = FOLDER
    keep: dict[str, int | str] = {}

    def keeps(self, state: str, ended_at: int, now: int) -> bool:
        """Whether a run that has ended so must not be deleted yet."""
        kept = self.keep.get(state)
        return kept is not None and (isinstance(kept, str) or ended_at + kept > now)


def about_archive(block: ArchiveBlock | None) -> dict[str, dict[str, object]]:
    """The part of `about` that says it; nothing where nothing is written."""
    if block is None:
        return {}
    return {KEY: {"on": sorted(set(block.on)), "to": block.to, "keep": dict(sorted(block.keep.items()))}}


def policy_of(definition: Definition) -> ArchivePolicy | None:
    """What a definition says about archives."""
    said = definition.about.get(KEY)
    return None if said is None else msgspec.convert(said, ArchivePolicy)


Name = Annotated[str, StringConstraints(pattern=f"^{bounds.NAME.pattern}$")]
HandlerName = Annotated[str, StringConstraints(pattern=f"^{bounds.HANDLER_NAME.pattern}$")]
FieldName = Annotated[str, StringConstraints(pattern=f"^{bounds.FIELD_NAME.pattern}$")]
Text = Annotated[str, StringConstraints(max_length=bounds.MAX_TEXT)]
Plain = Annotated[Text, literal]
QueueName = Annotated[str, StringConstraints(max_length=63), literal]
JsonSchema = Annotated[dict[str, Any], Field(description="A JSON Schema that refers to nothing outside itself.")]
OnFailure = Literal["abort", "skip", "continue", "compensate"]


def _within_or_none(limits: tuple[int, int]) -> BeforeValidator:
    def check(value: Any) -> int | None:
        return None if value is None else duration(value, limits)

    return BeforeValidator(check, json_schema_input_type=DurationText | None)


def _length(value: Any) -> int | str:
    return value if isinstance(value, str) and OPENING in value else duration(value, bounds.DEADLINE)


_sleep_length = BeforeValidator(_length, json_schema_input_type=DurationText)
"""A duration within bounds, or a text with expressions that comes to one."""


def _as_share(value: Any) -> Any:
    return 0.0 if value == "none" else value


_jitter = BeforeValidator(_as_share, json_schema_input_type=float | Literal["none"])
"""A share of the delay, or `none`."""


def _as_moment(value: Any) -> int:
    """A moment as microseconds since 1970."""
    try:
        found = datetime.fromisoformat(filled(value)) if isinstance(value, str) else None
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise PydanticCustomError("moment", "must be a time with a zone, such as 2026-11-03T10:15Z")
    return round(found.timestamp() * bounds.SECOND)


_moment = BeforeValidator(_as_moment, json_schema_input_type=Annotated[str, Field(examples=["2026-11-03T10:15Z"])])


def _program(value: Any) -> Any:
    if isinstance(value, str):
        raise PydanticCustomError("command_text", "is a text")
    return {"argv": value} if isinstance(value, list) else filled(value)


def _declared(value: Any) -> Any:
    if not isinstance(value, list):
        return filled(value)
    if wrong := [name for name in value if not isinstance(name, str)]:
        raise PydanticCustomError("input_name", "{name} is not a name", {"name": repr(wrong[0])})
    if twice := [name for name, count in Counter(value).items() if count > 1]:
        raise PydanticCustomError("input_twice", "names `{name}` twice", {"name": twice[0]})
    return {name: {} for name in value}


def _amount(value: Any) -> Any:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if value in ("exclusive", "shared") or (is_number and 1 <= value <= bounds.MAX_UNITS):
        return value
    most = {"most": f"{bounds.MAX_UNITS:,}"}
    raise PydanticCustomError("amount", "must be exclusive, shared or a number of units from 1 to {most}", most)


Amount = Annotated[Any, BeforeValidator(_amount, json_schema_input_type=Literal["exclusive", "shared"] | int)]
"""How much of a resource a step needs."""


def _rate(value: Any) -> Any:
    """`100/1m` as units and microseconds."""
    units, _, period = value.partition("/") if isinstance(value, str) else ("", "", "")
    if not (units.isascii() and units.isdigit() and 1 <= int(units[:12]) <= bounds.MAX_UNITS and period):
        most = {"most": f"{bounds.MAX_UNITS:,}"}
        raise PydanticCustomError("rate", "must be units and a time, such as 100/1m, of 1 to {most} units", most)
    return int(units), duration(period, bounds.LIMIT_PERIOD)


def _units(value: Any) -> Any:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if (isinstance(value, str) and OPENING in value) or (is_number and 1 <= value <= bounds.MAX_UNITS):
        return value
    most = {"most": f"{bounds.MAX_UNITS:,}"}
    raise PydanticCustomError("units", "must be a whole number from 1 to {most}, or an expression", most)


def _per(value: Any) -> Any:
    if isinstance(value, str) and OPENING in value:
        return value
    raise PydanticCustomError("per", "must have an expression: ${{ input.customer }}; leave it out for one key")


class Block(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class LimitBlock(Block):
    """A limit on the claims of a step: how many under one key run at once, and how fast they begin."""

    name: Name
    per: Annotated[Any, BeforeValidator(_per, json_schema_input_type=str)] = None
    running: int | None = Field(default=None, ge=1, le=bounds.MAX_SLOTS)
    weight: int = Field(default=1, ge=1, le=bounds.MAX_SLOTS)
    rate: Annotated[Any, BeforeValidator(_rate, json_schema_input_type=str)] = None
    burst: int = Field(default=1, ge=1, le=bounds.MAX_UNITS)
    units: Annotated[Any, BeforeValidator(_units, json_schema_input_type=str | int)] = 1


class RetryBlock(Block):
    """How often and how patiently a step is tried; `max_attempts` counts all executions, the first included."""

    # Missing values keep their value without this block, so the defaults here only document the schema.
    max_attempts: Attempts = 3
    max_losses: int = Field(default=3, ge=1, le=bounds.MAX_LOSSES)
    backoff: Literal["constant", "linear", "exponential"] = "exponential"
    initial: Annotated[int | None, within(bounds.DELAY)] = None
    factor: float = Field(default=2.0, ge=1, le=100)
    max: Annotated[int | None, _within_or_none(bounds.DELAY)] = None
    jitter: Annotated[float, _jitter] = Field(default=0.5, ge=0, le=1)
    on: list[Literal["transient", "external", "timeout", "agent", "unknown"]] = [
        "transient",
        "external",
        "timeout",
        "agent",
        "unknown",
    ]
    max_elapsed: Annotated[int | None, within(bounds.DEADLINE)] = None


class CommandBlock(Block):
    """A program with its arguments, never a shell."""

    argv: list[Text] = Field(min_length=1, max_length=1000)
    env: dict[Word, Text] = {}
    cwd: Annotated[Text | None, given(Text)] = None


class HttpBlock(Block):
    """One HTTP request."""

    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] = "GET"
    url: Text
    headers: dict[Word, Text] = {}
    body: Any = None


class LevelBlock(Block):
    """The people who may decide a gate after it has escalated, besides those before, and until when."""

    roles: list[Word] = []
    groups: list[Word] = []
    approvers: list[Word] = []
    deadline: Annotated[int | None, within(bounds.DEADLINE)] = None


class ApprovalBlock(Block):
    """A gate for people: what they are shown, who may decide, how many must, and what its deadline does."""

    prompt: Plain = ""
    facts: dict[FieldName, Text] = Field(default={}, max_length=bounds.MAX_FACTS)
    roles: list[Word] = []
    groups: list[Word] = []
    approvers: list[Word] = []
    quorum: int = Field(default=1, ge=1, le=bounds.MAX_QUORUM)
    reject_on: int = Field(default=1, ge=1, le=bounds.MAX_QUORUM)
    excluded: list[Word] = Field(default=[], alias="not")
    standing: Literal["both", "opening", "now"] = "both"
    covers: Literal["shown", "plan"] = "plan"
    deadline: Annotated[int | None, within(bounds.DEADLINE)] = None
    on_deadline: Literal["reject", "fail", "approve", "skip", "escalate"] = "reject"
    escalate: list[LevelBlock] = Field(default=[], max_length=bounds.MAX_LEVELS)
    remind: Annotated[int | None, within(bounds.REMINDER)] = None


class DutyBlock(Block):
    """A constraint on the people of a run: gates with distinct people, gates that take two people between them, steps
    that no person does more than one of, or a role that a step takes."""

    distinct: Annotated[list[Name] | None, given(list[Name])] = None
    four_eyes: Annotated[list[Name] | None, given(list[Name])] = None
    incompatible: Annotated[list[Name] | None, given(list[Name])] = None
    requires_role: Annotated[dict[Name, Word] | None, given(dict[Name, Word])] = None


class WaitBlock(Block):
    """A wait for a message by name. `if` is a filter over `message`; a wait for several takes `count` of them, or takes
    them `until` an expression over `messages` holds."""

    event: Word
    deadline: Annotated[int | None, within(bounds.DEADLINE)] = None
    if_: Annotated[Text | None, given(Text)] = Field(default=None, alias="if")
    count: Annotated[int | None, given(int)] = Field(default=None, ge=1, le=bounds.MAX_GATHERED)
    until: Annotated[Text | None, given(Text)] = None


class SleepBlock(Block):
    """A step that lets time pass: for a duration, or until a moment with a zone (ISO 8601). An expression gives a
    duration or a number of seconds."""

    for_: Annotated[int | str | None, _sleep_length] = Field(default=None, alias="for")
    until: Annotated[int | None, _moment] = None


def _tolerance(value: Any) -> int | float:
    """A number of elements, or a share as a fraction from a text such as `10%`."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= bounds.MAX_WIDTH:
        return value
    digits = value[:-1] if isinstance(value, str) and value.endswith("%") else ""
    if digits.isascii() and digits.isdigit() and len(digits) < 4 and int(digits) <= 100:
        return int(digits) / 100
    raise PydanticCustomError(
        "tolerance", "must be a number of elements from 0 to {most}, or a share such as 10%", {"most": bounds.MAX_WIDTH}
    )


class MapBlock(Block):
    """One element for each item of a list. `tolerate` of them may fail: a number, or a share such as `10%`."""

    over: Text
    max: int = Field(default=1_000, ge=1, le=bounds.MAX_WIDTH)
    in_flight: int = Field(default=10, ge=1, le=bounds.MAX_IN_FLIGHT)
    tolerate: Annotated[int | float, BeforeValidator(_tolerance, json_schema_input_type=int | str)] = 0
    early_stop: bool = True
    deadline: Annotated[int | None, within(bounds.DEADLINE)] = None


class RepeatBlock(Block):
    """One element after the other, `until` an expression holds after one or `while` it holds before each."""

    until: Annotated[Text | None, given(Text)] = None
    while_: Annotated[Text | None, given(Text)] = Field(default=None, alias="while")
    max: int = Field(ge=1, le=bounds.MAX_WIDTH)
    pause: Annotated[int | None, within(bounds.DELAY)] = None
    deadline: Annotated[int | None, within(bounds.DEADLINE)] = None


class ChildBlock(Block):
    """A step that starts a run of another published workflow and waits for its end, for `deadline` at most. A
    `detached` one is not waited for."""

    name: Name
    version: Annotated[int | None, given(int)] = Field(default=None, ge=1, le=bounds.MAX_VERSION)
    deadline: Annotated[int | None, within(bounds.DEADLINE)] = None
    detached: bool = False


class FlowBlock(Block):
    """The handler is a coroutine, and each call that it makes is a step: how many calls, and within which time.

    `version` is that of the function, if only workers that have this one may run it.
    """

    max_calls: int = Field(default=1_000, ge=1, le=bounds.MAX_WIDTH)
    deadline: Annotated[int | None, within(bounds.DEADLINE)] = None
    version: int | None = Field(default=None, ge=1, le=bounds.MAX_VERSION)


class ThenBlock(Block):
    """The handler may return steps that are added to the run: how many in all, and within which time they end."""

    max_steps: int = Field(default=20, ge=1, le=bounds.MAX_ADDED)
    deadline: Annotated[int | None, within(bounds.DEADLINE)] = None


class DependencyBlock(Block):
    """A step to wait for, and which endings besides success let this one go on."""

    step: str
    allow: list[Literal["succeeded", "skipped", "failed", "cancelled"]] = []


class RuleBlock(Block):
    """What must hold: an expression, a program that ends with 0, or a handler that returns true."""

    check: Annotated[Text | None, given(Text)] = None
    command: Annotated[
        CommandBlock | None, BeforeValidator(_program, json_schema_input_type=list[str] | CommandBlock)
    ] = None
    uses: Annotated[HandlerName | None, given(HandlerName)] = None
    with_: Any = Field(default=None, alias="with")
    name: Annotated[Name | None, given(Name)] = None
    message: Plain = ""
    timeout: Annotated[int | None, within(bounds.STEP_TIMEOUT)] = None
    silent: bool = False


class CompletionBlock(Block):
    """Whether a person completes the step by hand, and until when."""

    mode: Literal["auto", "manual"]
    deadline: Annotated[int | None, within(bounds.DEADLINE)] = None


class InputBlock(Block):
    """A field of the run's input."""

    type: Literal["any", "string", "integer", "number", "boolean", "object", "array"] = "any"
    required: bool = True
    description: Text = ""


Rules = list[Annotated[RuleBlock, _short("check", RuleBlock)]]

Uses = Annotated[HandlerName | None, given(HandlerName)]
Command = Annotated[CommandBlock | None, BeforeValidator(_program, json_schema_input_type=list[str] | CommandBlock)]
Http = Annotated[HttpBlock | None, given(HttpBlock)]
Agent = Annotated[HandlerName | None, given(HandlerName)]
Action = Annotated[Plain | None, given(Plain)]
RetryGiven = Annotated[RetryBlock | None, given(RetryBlock)]


class UndoBlock(Block):
    """The hook that takes a step back."""

    uses: Uses = None
    command: Command = None
    http: Http = None
    agent: Agent = None
    action: Action = None
    with_: Any = Field(default=None, alias="with")
    timeout: Annotated[int | None, within(bounds.STEP_TIMEOUT)] = None
    retry: RetryGiven = None
    capabilities: Annotated[list[Word] | None, given(list[Word])] = None
    queue: Annotated[QueueName | None, given(QueueName)] = None
    on_exhausted: Literal["fail", "hold"] = "fail"


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else filled(value)


class HookCommandBlock(Block):
    """A program with its arguments, which is given the event on its standard input."""

    argv: list[Text] = Field(min_length=1, max_length=100)
    cwd: Annotated[Text | None, given(Text)] = None


class HookMessageBlock(Block):
    """A message to the run that has this business key; its name is that of the event unless another is given."""

    key: Word
    name: Annotated[Word | None, given(Word)] = None


class HookWebhookBlock(Block):
    """A signed request to an address; `secrets` are names, the newest first."""

    url: Text
    secrets: Annotated[list[Word], BeforeValidator(_listed, json_schema_input_type=str | list[str])] = Field(
        min_length=1, max_length=5
    )


class HookBlock(Block):
    """What is done after the run or the step has reached a state: a function, a program, a message or a request."""

    name: Annotated[Name | None, given(Name)] = None
    on: Annotated[list[Word], BeforeValidator(_listed, json_schema_input_type=str | list[str])] = Field(
        min_length=1, max_length=50
    )
    uses: Uses = None
    command: Annotated[
        HookCommandBlock | None, BeforeValidator(_program, json_schema_input_type=list[str] | HookCommandBlock)
    ] = None
    message: Annotated[HookMessageBlock | None, _short("key", HookMessageBlock)] = None
    webhook: Annotated[HookWebhookBlock | None, given(HookWebhookBlock)] = None


Hooks = Annotated[list[HookBlock], Field(max_length=bounds.MAX_HOOKS)]


class StepBlock(Block):
    """One step of a workflow."""

    name: Name
    uses: Uses = None
    command: Command = None
    http: Http = None
    agent: Agent = None
    action: Action = None
    approval: Annotated[ApprovalBlock | None, _short("prompt", ApprovalBlock)] = None
    hold: Annotated[ApprovalBlock | None, _short("prompt", ApprovalBlock)] = None
    wait: Annotated[WaitBlock | None, _short("event", WaitBlock)] = None
    sleep: Annotated[SleepBlock | None, _short("for", SleepBlock)] = None
    map: Annotated[MapBlock | None, _short("over", MapBlock)] = None
    repeat: Annotated[RepeatBlock | None, given(RepeatBlock)] = None
    flow: Annotated[FlowBlock | None, given(FlowBlock)] = None
    then: Annotated[ThenBlock | None, given(ThenBlock)] = None
    workflow: Annotated[ChildBlock | None, _short("name", ChildBlock)] = None
    switch: Annotated[list[StepBlock] | None, given(list[Any])] = Field(
        default=None, min_length=1, max_length=bounds.MAX_CASES
    )
    with_: Any = Field(default=None, alias="with")
    input_schema: Annotated[JsonSchema | None, given(JsonSchema)] = None
    output_schema: Annotated[JsonSchema | None, given(JsonSchema)] = None
    depends_on: Annotated[
        list[Annotated[DependencyBlock, _short("step", DependencyBlock)]] | None,
        given(list[str | DependencyBlock]),
    ] = None
    if_: Annotated[Text | None, given(Text)] = Field(default=None, alias="if")
    timeout: Annotated[int | None, within(bounds.STEP_TIMEOUT)] = None
    retry: RetryGiven = None
    on_failure: Annotated[OnFailure | None, given(OnFailure)] = None
    on_exhausted: Literal["fail", "hold"] = "fail"
    effect: Annotated[
        Literal["read", "write", "irreversible"] | None, given(Literal["read", "write", "irreversible"])
    ] = None
    undo: Annotated[UndoBlock | None, _short("uses", UndoBlock)] = None
    compensate_when: Literal["succeeded", "attempted"] = "succeeded"
    pre: Rules = []
    post: Rules = []
    rules: Rules = []
    validate_: Rules = Field(default=[], alias="validate")
    completion: Annotated[CompletionBlock | None, _short("mode", CompletionBlock)] = None
    transactional: bool = False
    capabilities: list[Word] = []
    queue: QueueName = ""
    resources: dict[Word, Amount] = Field(default={}, max_length=bounds.MAX_RESOURCES)
    limits: list[Annotated[LimitBlock, _short("name", LimitBlock)]] = Field(default=[], max_length=bounds.MAX_LIMITS)
    order: Annotated[int | None, given(int)] = Field(default=None, ge=0, le=bounds.MAX_ORDER)
    description: Text = ""
    hooks: Hooks = []


class PolicyRuleBlock(Block):
    """One rule of a policy: for which steps it speaks, when, and what follows."""

    name: Word
    workflows: list[Text] = Field(default=[], max_length=100)
    steps: list[Text] = Field(default=[], max_length=100)
    when: Text | None = None
    then: Literal["allow", "hold", "deny"]
    reason: Plain = ""
    approval: ApprovalBlock | None = None


class BudgetBlock(Block):
    """What a run may spend, and what follows where the next step would begin."""

    usd: float | None = Field(default=None, gt=0, le=bounds.MAX_BUDGET)
    tokens: float | None = Field(default=None, gt=0, le=bounds.MAX_BUDGET)
    attempts: int | None = Field(default=None, ge=1, le=bounds.MAX_BUDGET)
    on_exceeded: Literal["hold", "warn", "stop"] = "stop"
    approval: ApprovalBlock | None = None


def _keep(value: Any) -> Any:
    return value if value == FOREVER else duration(value, bounds.RETENTION)


def _ending(value: Any) -> Any:
    return IN_OTHER_WORDS.get(value, value) if isinstance(value, str) else value


def _by_ending(value: Any) -> Any:
    return {_ending(name): kept for name, kept in value.items()} if isinstance(value, dict) else value


Kept = Annotated[int | Literal["forever"], BeforeValidator(_keep, json_schema_input_type=str)]


class ArchiveBlock(Block):
    """Archive each run when it has ended, and keep it in the database for some time."""

    on: list[Annotated[Ending, BeforeValidator(_ending, json_schema_input_type=str)]] = Field(
        default=list(ENDINGS), min_length=1, max_length=len(ENDINGS)
    )
    to: Plain = FOLDER
    keep: Annotated[dict[Ending, Kept], BeforeValidator(_by_ending, json_schema_input_type=dict[str, str])] = {}


class CatchUpBlock(Block):
    """Which moments that passed while no worker ran are fired: none, the last, or all up to `most` within `window`,
    each `spread` after the one before."""

    keep: Literal["none", "last", "all"] = "last"
    most: int = Field(default=10, ge=1, le=20)
    window: Annotated[int, within(bounds.CATCH_UP)] = bounds.DEFAULT_CATCH_UP
    spread: Annotated[int, within(bounds.JITTER)] = 0


class EndingBlock(Block):
    """The end of a run of another workflow, in one of these states."""

    workflow: Name
    states: list[Literal["succeeded", "failed", "cancelled", "rolled_back"]] = Field(
        default=["succeeded", "failed", "cancelled", "rolled_back"], min_length=1
    )


class TriggerBlock(Block):
    """What starts a run by itself: a cron expression, an interval, an event, or the end of another run."""

    name: Annotated[Name | None, given(Name)] = None
    schedule: Annotated[Text | None, given(Text)] = None
    every: Annotated[int | None, within(bounds.INTERVAL)] = None
    zone: Word = "UTC"
    gap: Annotated[Literal["shift", "skip"] | None, given(Literal["shift", "skip"])] = None
    fold: Annotated[Literal["first", "both"] | None, given(Literal["first", "both"])] = None
    jitter: Annotated[int, within(bounds.JITTER)] = 0
    event: Annotated[Word | None, given(Word)] = None
    ended: Annotated[EndingBlock | None, _short("workflow", EndingBlock)] = None
    condition: Annotated[Text | None, given(Text)] = None
    with_: Any = Field(default=None, alias="with")
    overlap: Annotated[
        Literal["skip", "queue", "cancel", "allow"] | None, given(Literal["skip", "queue", "cancel", "allow"])
    ] = None
    catch_up: Annotated[CatchUpBlock, _short("keep", CatchUpBlock)] = CatchUpBlock()


class WorkflowBlock(Block):
    """A workflow in Stepkeep's native format."""

    workflow: Name
    version: int = Field(default=1, ge=1, le=bounds.MAX_VERSION)
    description: Text = ""
    timeout: Annotated[int | None, within(bounds.RUN_TIMEOUT)] = None
    on_failure: Literal["abort", "continue", "compensate"] = "abort"
    hook_failure: Literal["continue", "stop"] = "continue"
    input: Annotated[
        dict[FieldName, InputBlock] | None,
        BeforeValidator(_declared, json_schema_input_type=list[FieldName] | dict[FieldName, InputBlock]),
    ] = None
    input_schema: Annotated[JsonSchema | None, given(JsonSchema)] = None
    output: Any = None
    output_schema: Annotated[JsonSchema | None, given(JsonSchema)] = None
    rules: Rules = []
    lease: Annotated[int | None, within(bounds.LEASE)] = None
    grace: Annotated[int | None, within(bounds.GRACE)] = None
    priority: int = Field(default=0, ge=-bounds.MAX_PRIORITY, le=bounds.MAX_PRIORITY)
    slots: int | None = Field(default=None, ge=1, le=bounds.MAX_SLOTS)
    labels: dict[Word, Plain] = {}
    duties: list[DutyBlock] = []
    policy: list[PolicyRuleBlock] = Field(default=[], max_length=bounds.MAX_POLICY_RULES)
    budget: BudgetBlock | None = None
    archive: Annotated[ArchiveBlock | None, given(ArchiveBlock)] = None
    triggers: list[TriggerBlock] = Field(default=[], max_length=bounds.MAX_TRIGGERS)
    hooks: Hooks = []
    steps: list[StepBlock] = Field(min_length=1, max_length=bounds.MAX_STEPS)


_WORK = ("uses", "command", "http", "agent")
_KINDS = {"StepBlock": (*_WORK, "approval", "wait", "sleep", "workflow", "switch"), "UndoBlock": _WORK}


def native_schema() -> dict[str, Any]:
    """The schema as data.

    >>> native_schema()["required"]
    ['workflow', 'steps']
    """
    schema: dict[str, Any] = json.loads(schema_text())
    return schema


def schema_text() -> str:
    """The schema as it is published."""
    return published(WorkflowBlock, "Stepkeep workflow, native format", _one_kind_of_work)


def _one_kind_of_work(schema: dict[str, Any]) -> None:
    for name, kinds in _KINDS.items():
        schema["$defs"][name]["oneOf"] = [{"required": [kind]} for kind in kinds]
        schema["$defs"][name]["dependentRequired"] = {"agent": ["action"], "action": ["agent"]}


def published(model: type[BaseModel], title: str, amend: Callable[[dict[str, Any]], None]) -> str:
    """A model as the text of a JSON Schema; `amend` adds what the model cannot express."""
    schema = tidied(model.model_json_schema(by_alias=True, mode="validation"))
    amend(schema)
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema}
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def tidied(node: Any, *, names: bool = False) -> Any:
    """Without titles that repeat each key, and without optional nulls."""
    if isinstance(node, list):
        return [tidied(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: tidied(value, names=key in {"properties", "$defs"})
        for key, value in node.items()
        if names or not (key == "title" or (key == "default" and value is None))
    }


if __name__ == "__main__":
    sys.stdout.write(schema_text())
