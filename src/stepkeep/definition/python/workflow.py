"""Workflows written in Python: each call adds a step, and `definition()` gives the canonical definition.

The calls only collect the data that YAML would hold, and record the calling line. The native front end checks it, so
both formats have the same rules and defaults. Problems point at the line of the call. Nothing runs here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path as FilePath
from types import ModuleType
from typing import Any, Generic, Literal, TypedDict, Unpack

import msgspec

from stepkeep.definition import arguments
from stepkeep.definition.bounds import HANDLER_NAME
from stepkeep.definition.durations import format_duration
from stepkeep.definition.expressions.objects import Expr, steps_read
from stepkeep.definition.findings import Path, in_python
from stepkeep.definition.native.reader import CheckReport, accepted, examine
from stepkeep.definition.python.handlers import name_of, registry_of
from stepkeep.definition.python.registry import Function, Output, Registry, hook_name
from stepkeep.definition.python.retry import Duration, Retry, written_retry
from stepkeep.definition.text.document import path_text
from stepkeep.edges.safe_text import html_table, plain_text, type_name
from stepkeep.kernel.definition import Definition
from stepkeep.kernel.errors import InvalidInput, Problem

MAX_DEPTH = 100
MOST_SHOWN = 10
"""How many steps the repr of a workflow names."""

Policy = Literal["abort", "skip", "continue", "compensate"]
Condition = str | Expr
Rule = Condition | Function | Mapping[str, Any]


class StepRef(msgspec.Struct, frozen=True):
    """A step of a workflow, for `after=` and for expressions."""

    name: str
    allowed: tuple[str, ...] = ()

    def allow(self, *endings: str) -> StepRef:
        """The same step as a dependency that these endings satisfy too: `after=check.allow("skipped")`."""
        return StepRef(self.name, endings)

    @property
    def output(self) -> Expr:
        """The output of this step, for inputs and conditions: `account.output`, `account.output.id`.

        A step that may be skipped has none then: `account.output.or_(None)`.
        """
        text = f"steps[{json.dumps(self.name, ensure_ascii=False)}].output"
        return Expr(text, path=(f"has({text})",))

    @property
    def state(self) -> Expr:
        """The state of this step, for conditions: `check.state == "skipped"`."""
        return Expr(f"steps[{json.dumps(self.name, ensure_ascii=False)}].state")


After = StepRef | str | Iterable[StepRef | str]


class StepOptions(TypedDict, total=False):
    """The options of every kind of step; names and defaults are those of YAML."""

    after: After
    if_: Condition
    on_failure: Policy
    order: int
    description: str
    hooks: Sequence[Mapping[str, Any]]


class WorkTerms(TypedDict, total=False):
    """The options of whatever a handler does: a step, or a call of a flow."""

    timeout: Duration
    retry: Retry
    undo: Function | str | Mapping[str, Any]
    effect: Literal["read", "write", "irreversible"]
    compensate_when: Literal["succeeded", "attempted"]
    pre: Sequence[Rule]
    post: Sequence[Rule]
    rules: Sequence[Rule]
    on_exhausted: Literal["fail", "hold"]
    hold: str | Mapping[str, Any]
    completion: Literal["auto", "manual"] | Mapping[str, Any]
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any]
    capabilities: Sequence[str]
    queue: str
    limits: Sequence[str | Mapping[str, Any]]


class CallOptions(WorkTerms, total=False):
    """The options of a call of a flow. `name` is that of the call."""

    name: str
    description: str


class GateOptions(TypedDict, total=False):
    """The options of a gate of a flow: those of `Workflow.approval`."""

    facts: Mapping[str, Any]
    roles: Sequence[str]
    groups: Sequence[str]
    approvers: Sequence[str]
    quorum: int
    reject_on: int
    not_: Sequence[str]
    standing: Literal["both", "opening", "now"]
    covers: Literal["shown", "plan"]
    deadline: Duration
    on_deadline: Literal["reject", "fail", "approve", "skip", "escalate"]
    escalate: Sequence[Mapping[str, Any]]
    remind: Duration
    description: str


class WorkOptions(StepOptions, WorkTerms, total=False):
    """Further options of a step with a handler."""

    resources: Mapping[str, Literal["exclusive", "shared"] | int]
    map: Condition | Mapping[str, Any]
    repeat: Mapping[str, Any]
    flow: Mapping[str, Any]
    then: Mapping[str, Any]


class HandlerOptions(WorkOptions, total=False):
    """Further options of a step with inputs."""

    inputs: Any


class ChildOptions(StepOptions, total=False):
    """Further options of a step that starts another workflow."""

    inputs: Any
    undo: Function | str | Mapping[str, Any]
    effect: Literal["read", "write", "irreversible"]
    map: Condition | Mapping[str, Any]
    repeat: Mapping[str, Any]


class CaseOptions(TypedDict, total=False):
    """The options of a case of a choice."""

    if_: Condition
    inputs: Any
    description: str
    timeout: Duration
    retry: Retry
    undo: Function | str | Mapping[str, Any]
    effect: Literal["read", "write", "irreversible"]
    compensate_when: Literal["succeeded", "attempted"]
    post: Sequence[Rule]
    rules: Sequence[Rule]
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any]
    capabilities: Sequence[str]
    queue: str
    resources: Mapping[str, Literal["exclusive", "shared"] | int]
    limits: Sequence[str | Mapping[str, Any]]


class Workflow(Generic[Output]):
    """A workflow in the making.

    Without a single `after`, steps run in the order of the calls. With one anywhere, a step starts after the steps it
    names in `after` and those whose output it reads; a step with neither starts at once. A step without `inputs` is
    given the run's input, and its function receives the fields it has parameters for; an undo without inputs is given
    what its step returned.

    >>> def fetch(day: str) -> dict: ...
    >>> def publish(report: str) -> None: ...
    >>> def warn(rows: int) -> None: ...
    >>> nightly = Workflow("nightly", timeout="1h")
    >>> fetched = nightly.step("fetch", fetch)
    >>> published = nightly.step("publish", publish, after=fetched, inputs={"report": fetched.output.report})
    >>> warned = nightly.step("warn", warn, inputs={"rows": fetched.output.rows}, if_=fetched.output.rows < 100)
    >>> [(step.name, [edge.step for edge in step.depends_on]) for step in nightly.definition().steps]
    [('fetch', []), ('publish', ['fetch']), ('warn', ['fetch'])]
    """

    def __init__(
        self,
        name: str,
        *,
        version: int = 1,
        description: str = "",
        timeout: Duration | None = None,
        on_failure: Literal["abort", "continue", "compensate"] = "abort",
        hook_failure: Literal["continue", "stop"] = "continue",
        input: Sequence[str] | Mapping[str, Any] | None = None,  # noqa: A002 - the word of the format
        input_schema: Mapping[str, Any] | None = None,
        output: Any = None,
        output_schema: Mapping[str, Any] | None = None,
        rules: Sequence[Rule] = (),
        lease: Duration | None = None,
        grace: Duration | None = None,
        priority: int = 0,
        slots: int | None = None,
        labels: Mapping[str, str] | None = None,
        duties: Sequence[Mapping[str, Any]] = (),
        policy: Sequence[Mapping[str, Any]] = (),
        budget: Mapping[str, Any] | None = None,
        archive: Mapping[str, Any] | None = None,
        triggers: Sequence[Mapping[str, Any]] = (),
        hooks: Sequence[Mapping[str, Any]] = (),
        registry: Registry | None = None,
    ) -> None:
        self.registry = registry_of(registry)
        self._calls = _Calls(_caller())
        self._steps: list[dict[str, Any]] = []
        self._checked: tuple[int, CheckReport] | None = None
        optional = {
            "timeout": timeout,
            "lease": lease,
            "grace": grace,
            "slots": slots,
            "input": input,
            "input_schema": input_schema,
            "output_schema": output_schema,
        }
        self._head = {
            "workflow": name,
            "version": version,
            "description": description,
            "on_failure": on_failure,
            "hook_failure": hook_failure,
            "output": output,
            "rules": self._rules("rules", rules),
            "priority": priority,
            "labels": {} if labels is None else arguments.mapping("labels", labels),
            "duties": [arguments.mapping("duties", duty) for duty in arguments.items("duties", duties)],
            "policy": [arguments.mapping("a rule of policy", rule) for rule in arguments.items("policy", policy)],
            "triggers": [arguments.mapping("a trigger", one) for one in arguments.items("triggers", triggers)],
            "hooks": self._hooks(hooks),
            **({} if budget is None else {"budget": arguments.mapping("budget", budget)}),
            **({} if archive is None else {"archive": arguments.mapping("archive", archive)}),
            **{key: value for key, value in optional.items() if value is not None},
        }

    def __repr__(self) -> str:
        steps = ", ".join(str(step.get("name")) for step in self._steps[:MOST_SHOWN])
        more = f" and {len(self._steps) - MOST_SHOWN} more" if len(self._steps) > MOST_SHOWN else ""
        return f"<{type(self).__name__} {self.name} v{self._head['version']}: {steps or 'no steps'}{more}>"

    def _repr_html_(self) -> str:
        """For notebooks."""
        rows = [(str(step.get("name")), str(step.get("uses", ""))) for step in self._steps]
        return html_table(f"{type(self).__name__} {self.name} v{self._head['version']}", rows)

    @property
    def name(self) -> str:
        """The name that the definition is published under."""
        return str(self._head["workflow"])

    @property
    def input(self) -> Expr:
        """The input of a run, for inputs and conditions: `if_=order.input.amount > 1000`."""
        return Expr("input")

    @property
    def item(self) -> Expr:
        """The item of an element, for the inputs of a step with `map=`."""
        return Expr("item")

    @property
    def index(self) -> Expr:
        """The place of an element, from 0, for the inputs of a step with `map=` or `repeat=`."""
        return Expr("index")

    @property
    def last(self) -> Expr:
        """The output of the element before, for the inputs and the condition of a step with `repeat=`; null before the
        first."""
        return Expr("last")

    def returns(self, output: Any) -> None:
        """Declare the output of a run, once the steps that it reads are there.

        >>> def count(text: str) -> int: ...
        >>> flow = Workflow("count-words")
        >>> counted = flow.step("count", count)
        >>> flow.returns({"words": counted.output, "text": flow.input.text})
        >>> flow.definition().output
        {'words': '${{ steps["count"].output }}', 'text': '${{ input.text }}'}
        """
        self._head["output"] = output
        self._checked = None

    def step(
        self,
        name: str,
        handler: Function | str,
        /,
        *,
        transactional: bool = False,
        **options: Unpack[HandlerOptions],
    ) -> StepRef:
        """Run a handler: a function (decorated or not), or the name of one that workers know."""
        uses = handler if isinstance(handler, str) else name_of(handler, self.registry)
        work: dict[str, Any] = {"uses": uses}
        if arguments.flag("transactional", transactional):
            work["transactional"] = True
        return self._add(name, work, options)

    def agent(self, name: str, agent: str, action: str, /, **options: Unpack[HandlerOptions]) -> StepRef:
        """Ask an agent to perform an action, given as text."""
        return self._add(name, {"agent": agent, "action": action}, options)

    def command(
        self,
        name: str,
        argv: Sequence[str],
        /,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        **options: Unpack[WorkOptions],
    ) -> StepRef:
        """Run a program with arguments, without a shell."""
        given = {} if env is None else arguments.mapping("env", env)
        block: dict[str, Any] = {"argv": arguments.items("argv", argv), "env": given}
        if cwd is not None:
            block["cwd"] = cwd
        return self._add(name, {"command": block}, options)

    def http(
        self,
        name: str,
        url: str,
        /,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: Any = None,
        **options: Unpack[WorkOptions],
    ) -> StepRef:
        """Make one HTTP request."""
        given = {} if headers is None else arguments.mapping("headers", headers)
        block = {"method": method, "url": url, "headers": given, "body": body}
        return self._add(name, {"http": block}, options)

    def approval(
        self,
        name: str,
        /,
        *,
        prompt: str = "",
        facts: Mapping[str, str | Expr] | None = None,
        roles: Sequence[str] = (),
        groups: Sequence[str] = (),
        approvers: Sequence[str] = (),
        quorum: int = 1,
        reject_on: int = 1,
        not_: Sequence[str] = (),
        standing: Literal["both", "opening", "now"] = "both",
        covers: Literal["shown", "plan"] = "plan",
        deadline: Duration | None = None,
        on_deadline: Literal["reject", "fail", "approve", "skip", "escalate"] = "reject",
        escalate: Sequence[Mapping[str, Any]] = (),
        remind: Duration | None = None,
        **options: Unpack[StepOptions],
    ) -> StepRef:
        """Wait for as many people as `quorum` to approve, among those whom `roles`, `groups` and `approvers` name.

        `not_` keeps people out: "requester", "executed:STEP", "completed:STEP", "decided:STEP", or a person by name.
        """
        block = {
            "prompt": prompt,
            "facts": {} if facts is None else arguments.mapping("facts", facts),
            "roles": arguments.items("roles", roles),
            "groups": arguments.items("groups", groups),
            "approvers": arguments.items("approvers", approvers),
            "quorum": quorum,
            "reject_on": reject_on,
            "not": arguments.items("not_", not_),
            "standing": standing,
            "covers": covers,
            "on_deadline": on_deadline,
            "escalate": [arguments.mapping("escalate", level) for level in arguments.items("escalate", escalate)],
            **({} if deadline is None else {"deadline": deadline}),
            **({} if remind is None else {"remind": remind}),
        }
        return self._add(name, {"approval": block}, options)

    def wait(
        self,
        name: str,
        event: str,
        /,
        *,
        deadline: Duration | None = None,
        where: str | None = None,
        count: int | None = None,
        until: str | None = None,
        **options: Unpack[StepOptions],
    ) -> StepRef:
        """Wait for a message of this name; with `where`, for one that the expression over `message` accepts. With
        `count`, wait for so many, and with `until`, until the expression over `messages` holds: the output is a list.
        """
        given = {"deadline": deadline, "if": where, "count": count, "until": until}
        block = {"event": event, **{key: value for key, value in given.items() if value is not None}}
        return self._add(name, {"wait": block}, options)

    def sleep(
        self,
        name: str,
        duration: Duration | Expr | None = None,
        /,
        *,
        until: datetime | str | None = None,
        **options: Unpack[StepOptions],
    ) -> StepRef:
        """Let time pass, for a duration or until a moment. No worker is taken, and restarts do not matter.

        An expression gives a duration or a number of seconds: `flow.sleep("pause", flow.input.seconds)`.

        >>> flow = Workflow("reminder")
        >>> pause = flow.sleep("two-days", "2d")
        """
        block: dict[str, Any] = {} if duration is None else {"for": duration}
        if until is not None:
            block["until"] = until.isoformat() if isinstance(until, datetime) else until
        return self._add(name, {"sleep": block}, options)

    def workflow(
        self,
        name: str,
        workflow: str,
        /,
        *,
        version: int | None = None,
        deadline: Duration | None = None,
        detached: bool = False,
        **options: Unpack[ChildOptions],
    ) -> StepRef:
        """Start a run of another published workflow and wait for its end. Its output is the output of the child.

        The version is pinned when this workflow is published: the one given, or the newest. A `detached` child is not
        waited for; the output of its step is `{"run_id": ...}`. With `map=` or `repeat=` each element is a child.

        >>> flow = Workflow("order")
        >>> shipping = flow.workflow("ship", "shipping", deadline="2h", inputs={"address": flow.input.address})
        """
        given = {"version": version, "deadline": deadline, "detached": detached or None}
        block = {"name": workflow, **{key: value for key, value in given.items() if value is not None}}
        return self._add(name, {"workflow": block}, options)

    def case(
        self,
        name: str,
        handler: Function | str | None = None,
        /,
        *,
        workflow: str | None = None,
        version: int | None = None,
        deadline: Duration | None = None,
        **options: Unpack[CaseOptions],
    ) -> Mapping[str, Any]:
        """One case of a choice: a handler, and the condition `if_=` under which it is taken. See `switch`.

        With `workflow=` instead of a handler, the case is a run of that published workflow, as in `workflow`.

        >>> flow = Workflow("payout")
        >>> checked = flow.case("checked", workflow="checked-payout", deadline="2d", if_=flow.input.amount > 1000)
        """
        given = {"version": version, "deadline": deadline}
        said = {key: value for key, value in given.items() if value is not None}
        if (handler is None) == (workflow is None):
            found = "neither" if handler is None else "both"
            raise InvalidInput(f"case {name} takes either a handler or workflow=, and has {found}.")
        if workflow is not None:
            return self._block(name, {"workflow": {"name": workflow, **said}}, options)
        if said:
            raise InvalidInput(f"{', '.join(said)} of case {name} means nothing without workflow=.")
        assert handler is not None
        uses = handler if isinstance(handler, str) else name_of(handler, self.registry)
        return self._block(name, {"uses": uses}, options)

    def switch(self, name: str, /, *cases: Mapping[str, Any], **options: Unpack[StepOptions]) -> StepRef:
        """Run one of these cases: the first whose condition holds. A last case without a condition is the default.

        The output is that of the case. The others leave nothing in the record.

        >>> flow = Workflow("payout")
        >>> big = flow.case("transfer", "bank.transfer", if_=flow.input.amount > 1000)
        >>> paid = flow.switch("pay", big, flow.case("card", "card.charge"))
        """
        given = [arguments.mapping("a case", case) for case in cases]
        return self._add(name, {"switch": given}, options)

    def definition(self) -> Definition:
        """The canonical definition, or DefinitionError with every problem and the line of its call."""
        return accepted(self.check())

    def document(self) -> dict[str, Any]:
        """The workflow as a YAML or JSON file would have it.

        >>> flow = Workflow("hello")
        >>> _ = flow.step("greet", "hello.greet")
        >>> flow.document()["steps"]
        [{'name': 'greet', 'uses': 'hello.greet'}]
        """
        return {**plain(self._head), "steps": with_inferred(self._steps)}

    @property
    def handler_names(self) -> tuple[str, ...]:
        """The handlers and agents that steps, undos, rules and hooks name, sorted."""
        return tuple(sorted(set(_names(self.document()))))

    def check(self) -> CheckReport:
        """The definition or its problems, and advice. An unchanged workflow is checked once."""
        known = self.registry.version
        if self._checked is None or self._checked[0] != known:
            self._checked = known, examine(self.document(), self._calls, self.registry, all_known=False)
        return self._checked[1]

    def _add(self, name: str, work: Mapping[str, Any], options: Mapping[str, Any]) -> StepRef:
        self._steps.append(self._block(name, work, options))
        self._checked = None
        self._calls.steps.append(_caller())
        return StepRef(name)

    def _block(self, name: str, work: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
        """A step or a case as a YAML file would have it."""
        step = {"name": name, **work}
        for key, value in options.items():
            match key:
                case "after":
                    step["depends_on"] = _after(value)
                case "if_":
                    step["if"] = value
                case "inputs":
                    step["with"] = value
                case "retry" if not isinstance(value, Retry | Mapping):
                    raise InvalidInput(
                        f"retry= takes a stepkeep.Retry, not {arguments.shown(value)}. "
                        "Write retry=stepkeep.Retry(max_attempts=5)."
                    )
                case "pre" | "post" | "rules" if isinstance(value, Sequence) and not isinstance(value, str):
                    step[key] = self._rules(key, value)
                case "hooks":
                    step["hooks"] = self._hooks(value)
                case "undo":
                    step["undo"] = name_of(value, self.registry) if callable(value) else value
                case "depends_on" | "if" | "with" | "uses":
                    # The words of YAML are none of Python: refused with the word to write.
                    step[f"{key}="] = value
                case _:
                    step[key] = value
        return {key: plain(value) for key, value in step.items()}

    def _rules(self, key: str, rules: Sequence[Rule]) -> list[Any]:
        """Rules as YAML would give them: a function, alone or in `uses`, is named."""
        return [self._rule(rule) for rule in arguments.items(key, rules)]

    def _hooks(self, hooks: Any) -> list[Any]:
        """Hooks as YAML would give them: a function in `uses` is named."""
        found = [arguments.mapping("a hook", one) for one in arguments.items("hooks", hooks)]
        return [
            {**one, "uses": hook_name(one["uses"], self.registry)} if callable(one.get("uses")) else one
            for one in found
        ]

    def _rule(self, rule: Any) -> Any:
        if isinstance(rule, Mapping) and callable(rule.get("uses")):
            return {**rule, "uses": name_of(rule["uses"], self.registry)}
        is_function = callable(rule) and not isinstance(rule, Expr | Mapping)
        return {"uses": name_of(rule, self.registry)} if is_function else rule


def workflows_in(module: ModuleType) -> tuple[Workflow, ...]:
    """The workflows that a module defines, in its own order."""
    found = [value for value in vars(module).values() if isinstance(value, Workflow)]
    return tuple(dict.fromkeys(found))


class _Calls:
    """Where each call was made, so that a problem can point at it."""

    def __init__(self, start: tuple[str, int]) -> None:
        self.start = start
        self.steps: list[tuple[str, int]] = []

    def problem(self, path: Path, message: str, hint: str = "", *, key: bool = False, inside: int = 0) -> Problem:
        file, line = self.start
        message, hint = in_python(path, message, hint)
        match path:
            case ("steps", int(number), *_) if number < len(self.steps):
                file, line = self.steps[number]
        return Problem(file=file, line=line, column=1, path=path_text(path), message=message, hint=hint)


def _caller() -> tuple[str, int]:
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    file = FilePath(frame.f_code.co_filename)
    here = FilePath.cwd()
    shown = file.relative_to(here) if file.is_relative_to(here) else file
    return str(shown), frame.f_lineno


def with_inferred(steps: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The steps of a graph, each with the steps whose output it reads among its dependencies.

    A plain sequence stays one: there, every step comes after all that were added before it.
    """
    if not any("depends_on" in step for step in steps):
        return list(steps)
    names = {str(step.get("name")) for step in steps}
    return [_inferred(step, names) for step in steps]


def _inferred(step: dict[str, Any], names: set[str]) -> dict[str, Any]:
    own, known = step.get("name"), step.get("depends_on", [])
    if not isinstance(known, list):
        return step  # the check of the steps says what is wrong with it
    named = [edge.get("step") if isinstance(edge, dict) else edge for edge in known]
    # An undo runs after its step, and reads what that step could read. Schemas hold no expressions.
    unread = ("undo", "depends_on", "input_schema", "output_schema")
    read = steps_read([value for key, value in step.items() if key not in unread])
    missing = [name for name in read if name in names and name != own and name not in named]
    return {**step, "depends_on": [*known, *missing]} if missing else step


def _names(value: Any) -> Iterator[str]:
    """The texts under `uses` and `agent` that can be names of handlers, at any depth."""
    if isinstance(value, dict):
        yield from (
            text
            for key in ("uses", "agent")
            if isinstance(text := value.get(key), str) and HANDLER_NAME.fullmatch(text)
        )
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _names(inner)


def _after(given: After) -> list[Any]:
    many = [given] if isinstance(given, StepRef | str) else arguments.items("after", given)
    return [{"step": one.name, "allow": list(one.allowed)} if isinstance(one, StepRef) else one for one in many]


def plain(value: Any, depth: int = 0) -> Any:
    """The value as YAML would give it: durations as text, tuples as lists, no Python types."""
    if depth > MAX_DEPTH:
        raise InvalidInput(f"a value in a workflow is nested more than {MAX_DEPTH} levels deep, or holds itself.")
    match value:
        case timedelta():
            return format_duration(value // timedelta(microseconds=1))
        case Retry():
            return written_retry(value)
        case Mapping():
            return {str(plain(key)): plain(inner, depth + 1) for key, inner in value.items()}
        case list() | tuple():
            return [plain(inner, depth + 1) for inner in value]
        case Expr():
            return str(value)
        case StepRef():
            raise InvalidInput(
                f"the step {value.name} cannot stand in a workflow itself. Write .output behind it for what it "
                "returned, or name it in after=."
            )
        case str():
            return plain_text(value)
        case bool() | None:
            return value
        case int() | float():
            return float(value) if isinstance(value, float) else int(value)
        case _:
            raise InvalidInput(f"a {type_name(value)} cannot stand in a workflow: use text, numbers, lists and dicts.")
