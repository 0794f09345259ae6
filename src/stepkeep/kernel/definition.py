"""The canonical definition: the result of every front end, with each default made explicit.

Frozen values that survive a round trip through JSON; the digest of that JSON identifies the definition. Nothing here
validates (the `definition` package does) and nothing here runs. Times are whole microseconds. `${{ }}` texts are stored
as written and compiled where they are evaluated.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Literal

import msgspec

from stepkeep.kernel.machine.states import RETRIED_BY_DEFAULT, Category, ErrorClass, OnFailure, StepState
from stepkeep.kernel.triggers import TriggerSpec

SECOND = 1_000_000


class Backoff(StrEnum):
    CONSTANT = "constant"
    LINEAR = "linear"
    EXPONENTIAL = "exponential"


class Effect(StrEnum):
    """The effect of a step outside the engine, which decides whether it must be undone.

    `unknown` is the effect of a step whose definition states none. It counts as a write.
    """

    READ = "read"
    WRITE = "write"
    IRREVERSIBLE = "irreversible"
    UNKNOWN = "unknown"


class Completion(StrEnum):
    AUTO = "auto"
    MANUAL = "manual"


class CompensateWhen(StrEnum):
    SUCCEEDED = "succeeded"
    ATTEMPTED = "attempted"


class HookFailure(StrEnum):
    """What a rollback does when one of its hooks has failed for good."""

    CONTINUE = "continue"
    STOP = "stop"


class OnDeadline(StrEnum):
    """What an approval gate does when its deadline passes without a decision.

    `escalate` opens the next level; after the last level the gate is rejected.
    """

    REJECT = "reject"
    FAIL = "fail"
    APPROVE = "approve"
    SKIP = "skip"
    ESCALATE = "escalate"


class Standing(StrEnum):
    """When a person must have the role or the group that a gate asks for."""

    BOTH = "both"
    OPENING = "opening"
    NOW = "now"


class Covers(StrEnum):
    """What an approval covers: what was shown, or also the steps behind the gate as the plan has them."""

    SHOWN = "shown"
    PLAN = "plan"


class OnExhausted(StrEnum):
    """What a step does when no further attempt follows a failure that its handler did not call final.

    `hold_required` holds like `hold`, and people cannot skip the step: its run must not succeed without it.
    """

    FAIL = "fail"
    HOLD = "hold"
    HOLD_REQUIRED = "hold_required"


class _Value(msgspec.Struct, frozen=True, kw_only=True):
    """The root of all definition values."""


class Retry(_Value, frozen=True, kw_only=True):
    """The retry policy of a step. `max_attempts` counts all executions, the first included."""

    max_attempts: int = 3
    max_losses: int = 3
    backoff: Backoff = Backoff.EXPONENTIAL
    initial: int = SECOND
    factor: float = 2.0
    max: int | None = 30 * SECOND
    jitter: float = 0.0
    on: tuple[Category, ...] = tuple(sorted(RETRIED_BY_DEFAULT))
    caps_asked: bool | msgspec.UnsetType = msgspec.UNSET
    """Whether `max` also limits a delay that the handler asks for. Unset fields are not part of the JSON."""
    max_elapsed: int | msgspec.UnsetType = msgspec.UNSET
    """No retry is due later than this after the start of the first attempt that failed or was lost."""
    classes: tuple[ErrorClass, ...] | msgspec.UnsetType = msgspec.UNSET
    """Of the failures that have an error class, only these are retried; unset: all of them."""
    counts_losses: bool | msgspec.UnsetType = msgspec.UNSET
    """Whether a lost lease also uses up an attempt. Unset, it does; an undo says that it does not."""


HOOK_RETRY = Retry(max_attempts=2, initial=SECOND, max=10 * SECOND)
UNDO_RETRY = msgspec.structs.replace(HOOK_RETRY, max_losses=30, counts_losses=False)
"""An undo is given up when its handler has answered twice without success. Dead workers do not give it up before
thirty have died: what a run has done would remain, although no handler refused to undo it."""


class Handler(_Value, frozen=True, kw_only=True, tag_field="kind", tag="python"):
    """A registered Python function."""

    name: str


class Agent(_Value, frozen=True, kw_only=True, tag_field="kind", tag="agent"):
    """A named agent that receives an action as text, and inputs."""

    name: str
    action: str


class Command(_Value, frozen=True, kw_only=True, tag_field="kind", tag="command"):
    """A program with its arguments, never a shell."""

    argv: tuple[str, ...]
    env: dict[str, str] = {}
    cwd: str | None = None


class Http(_Value, frozen=True, kw_only=True, tag_field="kind", tag="http"):
    """One HTTP request."""

    method: str
    url: str
    headers: dict[str, str] = {}
    body: Any = None


class Rules(_Value, frozen=True, kw_only=True, tag_field="kind", tag="rules"):
    """No handler: only the run-level rules, in the check phase."""


class UndoChild(_Value, frozen=True, kw_only=True, tag_field="kind", tag="child"):
    """The undo of a step that started a child: no worker runs it, and the child is rolled back by its own hooks."""


Executor = Handler | Agent | Command | Http | Rules


class Dependency(_Value, frozen=True, kw_only=True):
    """An edge: the step, and the final states of it that let this step continue."""

    step: str
    allow: tuple[StepState, ...] = (StepState.SUCCEEDED,)


class Undo(_Value, frozen=True, kw_only=True):
    """The undo step of a step. `input_schema` is a JSON Schema that its inputs must match before the call.

    `capabilities` and `queue` are None where they are those of the step. With `on_exhausted: hold` the rollback waits
    for a person when no attempt is left.
    """

    executor: Executor | UndoChild
    inputs: Any = None
    input_schema: dict[str, Any] | None = None
    timeout: int = 300 * SECOND
    retry: Retry = HOOK_RETRY
    capabilities: tuple[str, ...] | None = None
    queue: str | None = None
    on_exhausted: OnExhausted | msgspec.UnsetType = msgspec.UNSET


class Level(_Value, frozen=True, kw_only=True):
    """Who may decide a gate, and until when. A level that names nothing is open to every person."""

    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    approvers: tuple[str, ...] = ()
    deadline: int | None = None

    @property
    def is_open(self) -> bool:
        return not (self.roles or self.groups or self.approvers)


class Approval(_Value, frozen=True, kw_only=True):
    """A gate for people: what they are shown, who may decide, how many must, and what its deadline does.

    `excluded` names people who may not decide: `requester`, `executed:STEP`, `completed:STEP`, `decided:STEP`, or a
    person by name. `facts` are expressions that are evaluated when the gate opens. `escalate` adds levels of approvers.
    `remind` is the time between two reminders. Without `covers`, an approval covers the plan.
    """

    prompt: str = ""
    roles: tuple[str, ...] = ()
    quorum: int = 1
    excluded: tuple[str, ...] = ()
    deadline: int | None = None
    on_deadline: OnDeadline = OnDeadline.REJECT
    groups: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    approvers: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    reject_on: int | msgspec.UnsetType = msgspec.UNSET
    facts: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    escalate: tuple[Level, ...] | msgspec.UnsetType = msgspec.UNSET
    remind: int | msgspec.UnsetType = msgspec.UNSET
    standing: Standing | msgspec.UnsetType = msgspec.UNSET
    covers: Covers | msgspec.UnsetType = msgspec.UNSET

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels of approvers, from the first."""
        first = Level(
            roles=self.roles, groups=self.groups or (), approvers=self.approvers or (), deadline=self.deadline
        )
        return (first, *(self.escalate or ()))

    @property
    def rejections(self) -> int:
        """How many rejections reject the gate."""
        return self.reject_on or 1


class Distinct(_Value, frozen=True, kw_only=True, tag_field="kind", tag="distinct"):
    """No person decides more than one of these gates."""

    gates: tuple[str, ...]


class FourEyes(_Value, frozen=True, kw_only=True, tag_field="kind", tag="four_eyes"):
    """At least two persons decide these gates between them."""

    gates: tuple[str, ...]


class Incompatible(_Value, frozen=True, kw_only=True, tag_field="kind", tag="incompatible"):
    """No person executes, completes or decides more than one of these steps."""

    steps: tuple[str, ...]


class RequiresRole(_Value, frozen=True, kw_only=True, tag_field="kind", tag="requires_role"):
    """Only a person with this role decides or completes this step, whatever else the step allows."""

    step: str
    role: str


Duty = Distinct | FourEyes | Incompatible | RequiresRole
"""A constraint of a run on its people."""


class Wait(_Value, frozen=True, kw_only=True):
    """A step that only waits: for a message by name, or if it `sleeps` for its deadline, which is its success.

    `until` is a moment that takes the place of a sleep's deadline, and `length` an expression that gives it. A wait for
    messages may have a filter (`accepts`), and take several: `count` of them, or until `enough` holds.
    """

    event: str
    deadline: int | None = None
    sleeps: bool | msgspec.UnsetType = msgspec.UNSET
    until: int | msgspec.UnsetType = msgspec.UNSET
    length: str | msgspec.UnsetType = msgspec.UNSET
    accepts: str | msgspec.UnsetType = msgspec.UNSET
    count: int | msgspec.UnsetType = msgspec.UNSET
    enough: str | msgspec.UnsetType = msgspec.UNSET


class SubWorkflow(_Value, frozen=True, kw_only=True):
    """A step that starts a run of another workflow and waits for its end, unless it is `detached`.

    `version` is pinned when the definition is published; 0 stands for the newest version until then.
    """

    workflow: str
    version: int = 0
    deadline: int | None = None
    detached: bool | msgspec.UnsetType = msgspec.UNSET


class Rule(_Value, frozen=True, kw_only=True):
    """What must hold before a handler runs or before a result counts, and the error if it does not.

    It is an `expression`; or a `program` (a command or a handler) with its `inputs`; or a `schema` that the output of
    the run must match. `silent`: the command must also print nothing. `timeout` ends the program, which then fails.
    """

    expression: str = ""
    message: str = ""
    name: str | msgspec.UnsetType = msgspec.UNSET
    program: Handler | Command | msgspec.UnsetType = msgspec.UNSET
    inputs: Any = msgspec.UNSET
    timeout: int | msgspec.UnsetType = msgspec.UNSET
    silent: bool | msgspec.UnsetType = msgspec.UNSET
    schema: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class PolicyEffect(StrEnum):
    """What a rule does to a step. The order is that of strictness."""

    ALLOW = "allow"
    HOLD = "hold"
    DENY = "deny"


class PolicyRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One rule: for which workflows and steps (patterns; none: all), when, and what follows.

    `when` is an expression over the facts; None means always. `approval` is the gate of a `hold`.
    """

    name: str
    then: PolicyEffect
    when: str | None = None
    reason: str = ""
    workflows: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    approval: Approval | None = None

    def concerns(self, workflow: str, step: str) -> bool:
        return _among(workflow, self.workflows) and _among(step, self.steps)


def _among(name: str, patterns: tuple[str, ...]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


class OnExceeded(StrEnum):
    """What a run does that has spent its budget, where the next step opens or is tried again."""

    HOLD = "hold"
    WARN = "warn"
    STOP = "stop"


class Budget(_Value, frozen=True, kw_only=True):
    """What a run may spend: amounts by the names that handlers report (`usd`, `tokens`), and `attempts`."""

    limits: dict[str, float]
    on_exceeded: OnExceeded = OnExceeded.STOP
    approval: Approval | None = None


class BudgetOf(StrEnum):
    """Whose spending a shared budget counts: all runs of the tenant, or those of each workflow for itself."""

    TENANT = "tenant"
    WORKFLOW = "workflow"


class SharedBudget(_Value, frozen=True, kw_only=True):
    """What the runs of a tenant, or of each workflow, may spend together within the last `per` microseconds.

    `workflows` are the names or patterns of the workflows that it stops; none means all.
    """

    name: str
    limits: dict[str, float]
    per: int
    of: BudgetOf = BudgetOf.TENANT
    workflows: tuple[str, ...] = ()
    on_exceeded: OnExceeded = OnExceeded.STOP
    approval: Approval | None = None


class InputType(StrEnum):
    """JSON's own types, by their JSON Schema names."""

    ANY = "any"
    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    OBJECT = "object"
    ARRAY = "array"


class InputField(_Value, frozen=True, kw_only=True):
    """A declared field of the run's input; a start with another input is refused."""

    type: InputType = InputType.ANY
    required: bool = True
    description: str | msgspec.UnsetType = msgspec.UNSET


class Map(_Value, frozen=True, kw_only=True, tag_field="kind", tag="map"):
    """One element for each item of a list. The rest of the step's definition is the template of its elements.

    `over` is an expression that gives the list when the step opens. At most `in_flight` elements are unsettled at a
    time. `tolerate` elements may fail, or `tolerate_share` of them. With `early_stop` the map stops as soon as more
    have failed; without it, every element runs.
    """

    over: str
    max: int = 1_000
    in_flight: int = 10
    tolerate: int = 0
    tolerate_share: float | None = None
    early_stop: bool = True
    deadline: int | None = None

    def tolerated(self, count: int) -> int:
        """How many of this many elements may fail."""
        return self.tolerate if self.tolerate_share is None else int(self.tolerate_share * count)


class Loop(_Value, frozen=True, kw_only=True, tag_field="kind", tag="loop"):
    """One element after the other, at most `max`. The rest of the step's definition is their template.

    `until` is evaluated after each element, and ends the loop where it holds. `as_long_as` is evaluated before each.
    `pause` is the time between two elements.
    """

    max: int
    until: str | None = None
    as_long_as: str | None = None
    pause: int = 0
    deadline: int | None = None


class Case(_Value, frozen=True, kw_only=True):
    """One branch of a choice: its name, its condition, and what it does. `when` is None for the default."""

    name: str
    step: StepDefinition
    when: str | None = None


class Switch(_Value, frozen=True, kw_only=True, tag_field="kind", tag="switch"):
    """One element: the first of these cases whose condition holds. `max` is how many cases there are."""

    max: int
    cases: tuple[Case, ...]

    @property
    def deadline(self) -> int | None:
        """A choice has no deadline of its own: its case has a timeout."""
        return None


class Flow(_Value, frozen=True, kw_only=True, tag_field="kind", tag="flow"):
    """The handler of the step is a coroutine, and each call that it makes is a step. It makes at most `max` calls.

    `deadline` is how long after its first call all must have ended. `version` is that of the function: only workers
    that have it run the flow. Without one, workers of any version do.
    """

    max: int = 1_000
    deadline: int | None = None
    version: int | msgspec.UnsetType = msgspec.UNSET


class Then(_Value, frozen=True, kw_only=True, tag_field="kind", tag="then"):
    """The handler of the step may return steps, which are added to the plan behind it: at most `max` in all.

    `deadline` is how long after the first of them all must have ended.
    """

    max: int = 20
    deadline: int | None = None


Growth = Map | Loop | Switch | Flow | Then
"""How a step adds steps to the plan of its run."""

Worked = Flow | Then
"""A worker runs the step itself, and its report says which steps are added: their rows have their templates."""


Amount = Literal["exclusive", "shared"] | int
"""How much of a resource a step needs: all of it, a share that excludes only exclusive use, or units of a pool."""


class Limit(_Value, frozen=True, kw_only=True):
    """How many steps under one key run at once, and how fast they begin. `per` has expressions; without it all steps
    under the name share one key. `weight` counts against `running`; `units`, which may have expressions, against `rate`
    in `period` (microseconds), of which `burst` may come at once. Without `running` and `rate`, the rule of the tenant
    counts."""

    name: str
    per: str | msgspec.UnsetType = msgspec.UNSET
    running: int | msgspec.UnsetType = msgspec.UNSET
    weight: int = 1
    rate: int | msgspec.UnsetType = msgspec.UNSET
    period: int = SECOND
    burst: int = 1
    units: int | str = 1


class StepDefinition(_Value, frozen=True, kw_only=True):
    """One step. Exactly one of `executor`, `approval`, `wait`, `child` and a `growth` that chooses is set; `hold` asks
    for approval before it may run."""

    name: str
    order: int
    executor: Executor | None = None
    approval: Approval | None = None
    wait: Wait | None = None
    hold: Approval | None = None
    inputs: Any = None
    depends_on: tuple[Dependency, ...] = ()
    condition: str | None = None
    timeout: int = 300 * SECOND
    retry: Retry = Retry()
    on_failure: OnFailure = OnFailure.ABORT
    effect: Effect = Effect.READ
    undo: Undo | None = None
    compensate_when: CompensateWhen = CompensateWhen.SUCCEEDED
    rules: tuple[Rule, ...] = ()
    completion: Completion = Completion.AUTO
    completion_deadline: int | None = None
    transactional: bool = False
    capabilities: tuple[str, ...] = ()
    queue: str = ""
    description: str = ""
    input_schema: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    output_schema: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    """JSON Schemas that the inputs match before the handler runs, and that the output matches before it counts."""
    on_exhausted: OnExhausted | msgspec.UnsetType = msgspec.UNSET
    pre: tuple[Rule, ...] | msgspec.UnsetType = msgspec.UNSET
    """Rules that must hold before the handler runs, under its claim."""
    growth: Growth | msgspec.UnsetType = msgspec.UNSET
    """Set on a step that owns elements. Except for a flow, the executor, inputs, retries, rules and undo are those of
    each element."""
    child: SubWorkflow | msgspec.UnsetType = msgspec.UNSET
    resources: dict[str, Amount] | msgspec.UnsetType = msgspec.UNSET
    """What it needs while a worker holds it, by the name of the resource."""
    limits: tuple[Limit, ...] | msgspec.UnsetType = msgspec.UNSET
    """The limits that its claims count under."""


class Hook(_Value, frozen=True, kw_only=True):
    """What is done when a run or a step reaches a state: after the commit, at least once, and without failing the run.

    `on` are the names of events, such as `run.failed` or `step.*`. `kind` is a kind of sink with its `options`. With
    `step`, only transitions of that step count.
    """

    name: str
    on: tuple[str, ...]
    kind: str
    options: dict[str, Any]
    step: str | msgspec.UnsetType = msgspec.UNSET


class Definition(_Value, frozen=True, kw_only=True):
    """A whole workflow, immutable per (name, version).

    `trigger` describes what starts a run, in the terms of the dialect. `about` holds parts of the dialect's format that
    do not change how a run executes; the engine stores them and the dialect shows them.
    """

    name: str
    version: int
    steps: tuple[StepDefinition, ...]
    dialect: str = "native"
    description: str = ""
    timeout: int | None = None
    on_failure: OnFailure = OnFailure.ABORT
    hook_failure: HookFailure = HookFailure.CONTINUE
    compensate_always: bool = False
    rules: tuple[Rule, ...] = ()
    output: Any = None
    input_fields: tuple[str, ...] | None = None
    input_types: dict[str, InputField] = {}
    lease: int = 30 * SECOND
    grace: int = 30 * SECOND
    priority: int = 0
    labels: dict[str, str] = {}
    trigger: Any = None
    about: dict[str, Any] = {}
    input_schema: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    """A JSON Schema that the input of a run matches before the run is created."""
    check_capabilities: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    """What the final check requires of a worker."""
    schemas: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    """The digests of the schemas that were taken from the registry, by reference."""
    duties: tuple[Duty, ...] | msgspec.UnsetType = msgspec.UNSET
    policy: tuple[PolicyRule, ...] | msgspec.UnsetType = msgspec.UNSET
    budget: Budget | msgspec.UnsetType = msgspec.UNSET
    triggers: tuple[TriggerSpec, ...] | msgspec.UnsetType = msgspec.UNSET
    """What starts runs of this workflow by itself, once this version is published."""
    hooks: tuple[Hook, ...] | msgspec.UnsetType = msgspec.UNSET
    slots: int | msgspec.UnsetType = msgspec.UNSET
    """How many runs of this workflow hold an execution slot at most; the others wait, queued."""

    @property
    def declared_triggers(self) -> tuple[TriggerSpec, ...]:
        return () if self.triggers is msgspec.UNSET else self.triggers

    @property
    def declared_hooks(self) -> tuple[Hook, ...]:
        return () if self.hooks is msgspec.UNSET else self.hooks

    @property
    def work(self) -> tuple[StepDefinition, ...]:
        """The steps, each choice replaced by what its cases do."""
        return tuple([one for step in self.steps for one in templates_of(step)])

    @property
    def compensates(self) -> bool:
        """Whether a failure of this workflow can start a rollback."""
        policies = {self.on_failure, *(step.on_failure for step in self.steps)}
        return self.compensate_always or OnFailure.COMPENSATE in policies


def templates_of(step: StepDefinition) -> tuple[StepDefinition, ...]:
    """What workers run for this step: the step itself, or the cases of a choice."""
    growth = step.growth
    return tuple([case.step for case in growth.cases]) if isinstance(growth, Switch) else (step,)


_encoder = msgspec.json.Encoder(order="sorted")
_decoder = msgspec.json.Decoder(Definition)


def encode_definition(definition: Definition) -> bytes:
    """The canonical JSON of a definition: sorted keys, every default written out."""
    return _encoder.encode(definition)


def decode_definition(document: bytes) -> Definition:
    return _decoder.decode(document)


def digest_of(document: bytes) -> str:
    """The digest that identifies a definition's content."""
    return hashlib.sha256(document).hexdigest()


def shown_document(gate: Approval, facts: Any = None) -> bytes:
    """What a gate shows to people, in canonical JSON: its prompt and its terms, and its facts if it has any."""
    return _encoder.encode(gate if gate.facts is msgspec.UNSET else {"facts": facts, "gate": gate})


def shown_terms(gate: Approval) -> dict[str, Any]:
    """The terms of a gate as the journal has them: the JSON that their digest is over, decoded."""
    terms: dict[str, Any] = msgspec.json.decode(_encoder.encode(gate))
    return terms


class QueueSpec(_Value, frozen=True, kw_only=True):
    """What a worker must have to run a step: an executor, capabilities, and a named queue if one is required."""

    kind: str
    name: str = ""
    capabilities: tuple[str, ...] = ()
    group: str = ""
