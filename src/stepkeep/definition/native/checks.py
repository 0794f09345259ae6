"""Checks a single step beyond its shape: exactly one kind of work, and only keys that apply to it.

Each check yields findings and continues. `references` checks expressions, `graph` the graph. The native front end calls
it for every step that has the right shape.

Checks the people of a definition: the terms of gates and holds, and the duties of a run; and gives advice on them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from stepkeep.definition.durations import format_duration
from stepkeep.definition.expressions.json_schema import schema_findings
from stepkeep.definition.expressions.template_text import OPENING
from stepkeep.definition.findings import LOAD_IT, Finding, Path, did_you_mean
from stepkeep.definition.native.graph import Ancestry
from stepkeep.definition.native.growth import check_cases, check_flow, check_growth, check_then
from stepkeep.definition.native.validators import complaints
from stepkeep.definition.native.written import (
    ApprovalBlock,
    CommandBlock,
    DutyBlock,
    HttpBlock,
    RuleBlock,
    StepBlock,
    UndoBlock,
    WorkflowBlock,
)
from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.kernel.definition import Approval, Definition, OnDeadline
from stepkeep.kernel.people.separation import DUTIES_OF_STEPS, REQUESTER

_WORK = ("uses", "command", "http", "agent")
_RULE_KINDS = ("check", "command", "uses")
_RULE_KEYS = {"with": ("command", "uses"), "timeout": ("command", "uses"), "silent": ("command",)}
"""Which kinds of rules a key applies to."""

_KINDS = (*_WORK, "approval", "wait", "sleep", "workflow", "switch")

# Keys that only apply to a step with a handler.
_FOR_WORK = {
    "timeout": "Give it a `deadline` instead.",
    "retry": "Nothing is tried there, so nothing is tried again.",
    "on_exhausted": "Nothing is tried there, so no attempts run out.",
    "undo": "There is nothing to take back.",
    "compensate_when": "There is nothing to take back.",
    "effect": "It changes nothing in the world.",
    "pre": "Use `if`, or check in a step before it.",
    "post": "Check what it brought in a step after it.",
    "rules": "Check what it brought in a step after it.",
    "validate": "Check what it brought in a step after it.",
    "completion": "It already waits.",
    "transactional": "No worker runs it.",
    "capabilities": "No worker runs it.",
    "queue": "No worker runs it.",
    "resources": "No worker runs it, so nothing would hold them.",
    "limits": "No worker runs it, so nothing would count.",
    "hold": "It waits already, or needs no worker.",
    "with": "It takes no inputs.",
    "input_schema": "It takes no inputs.",
    "output_schema": "Check what it brought in a step after it.",
    "map": "Give it to a step with a handler.",
    "repeat": "Give it to a step with a handler.",
    "flow": "Give it to a step with a handler.",
    "then": "Give it to a step with a handler.",
}


_FOR_CHILDREN = {
    "timeout": "Write `workflow: {name: NAME, deadline: 1h}`.",
    "retry": "The steps of that workflow are tried again by its own definition.",
    "on_exhausted": "Write it at the steps of that workflow.",
    "compensate_when": "Only a child that succeeded is undone by this workflow; another one undoes itself.",
    "pre": "Use `if`, or check in a step before it.",
    "post": "Check what it brought in a step after it.",
    "rules": "Check what it brought in a step after it.",
    "validate": "Check what it brought in a step after it.",
    "completion": "It ends when its run does.",
    "transactional": "No worker runs it.",
    "capabilities": "No worker runs it: write them at the steps of that workflow.",
    "queue": "No worker runs it: write it at the steps of that workflow.",
    "resources": "No worker runs it: write them at the steps of that workflow.",
    "limits": "No worker runs it: write them at the steps of that workflow.",
    "hold": "Put an `approval` before it.",
    "flow": "Start the flow as a workflow of its own.",
    "then": "Write it at a step of that workflow.",
    "input_schema": "Declare the input of that workflow.",
    "output_schema": "Declare the output of that workflow.",
}
"""Keys that mean nothing for a step that starts another workflow."""

_FOR_SWITCH = dict.fromkeys(_FOR_WORK, "Write it at a case.") | {
    "hold": "Put an `approval` before it.",
    "map": "Give it to a step before or behind it.",
    "repeat": "Give it to a step before or behind it.",
    "then": "Give it to a step before or behind it.",
}
"""Keys that mean nothing for a step that chooses between cases."""


def check_step(step: StepBlock, path: Path) -> Iterator[Finding]:
    """Every problem of one step that is visible without the others."""
    written = {step.__class__.model_fields[name].alias or name for name in step.model_fields_set}
    kinds = [kind for kind in _KINDS if kind in written]
    yield from _one_of(kinds, _KINDS, path, f"Step `{step.name}`")
    yield from _work(step, path)
    if len(kinds) == 1:
        yield from _misplaced(kinds[0], written, path)
    if step.compensate_when == "attempted" and "undo" not in written:
        said = "`compensate_when: attempted` needs an `undo` to run."
        yield Finding((*path, "compensate_when"), said, "Add one, or remove this.")
    if step.undo is not None:
        hooks = [kind for kind in _WORK if kind in step.undo.model_fields_set]
        at = (*path, "undo")
        yield from _one_of(hooks, _WORK, at, f"The undo of `{step.name}`")
        yield from _work(step.undo, at)
    for key, rules in rules_of(step).items():
        yield from check_rules(rules, (*path, key), longest=step.timeout)
    yield from _schemas(step, path)
    yield from _event_name(step, path)
    yield from _one_moment(step, path)
    if step.map is not None or step.repeat is not None:
        yield from check_growth(step, kinds, written, path)
    if step.flow is not None:
        yield from check_flow(step, written, path)
    if step.then is not None:
        yield from check_then(step, written, path)
    yield from _limits(step, path)
    yield from check_cases(step, path)
    for place, case in enumerate(step.switch or ()):
        if case.switch is None:
            yield from check_step(case, (*path, "switch", place))


def _limits(step: StepBlock, path: Path) -> Iterator[Finding]:
    seen: set[str] = set()
    for place, limit in enumerate(step.limits):
        at = (*path, "limits", place)
        if limit.name in seen:
            yield Finding((*at, "name"), f"Step `{step.name}` counts under `{limit.name}` twice.", "Name it once.")
        seen.add(limit.name)
        given = limit.model_fields_set
        for key, needs in (("burst", "rate"), ("units", "rate")):
            if key in given and limit.running is not None and limit.rate is None:
                yield Finding((*at, key), f"`{key}` means nothing without `{needs}`.", f"Add a `{needs}`.", key=True)


def _schemas(step: StepBlock, path: Path) -> Iterator[Finding]:
    for key, schema in (("input_schema", step.input_schema), ("output_schema", step.output_schema)):
        if schema is not None:
            yield from schema_findings(schema, (*path, key))
    has_inputs = "with_" in step.model_fields_set or (step.command is None and step.http is None)
    if step.input_schema is not None and not has_inputs:
        said = "`input_schema` has nothing to check: a `command` or `http` step without `with` has no inputs."
        yield Finding((*path, "input_schema"), said, "Add `with`, or remove this.", key=True)


def rules_of(step: StepBlock) -> dict[str, list[RuleBlock]]:
    """All rules of a step, by the key they are written under."""
    return {"pre": step.pre, "post": step.post, "rules": step.rules, "validate": step.validate_}


def check_rules(rules: Sequence[RuleBlock], path: Path, longest: int | None = None) -> Iterator[Finding]:
    """Every problem of rules that is visible without the rest; `longest` is the timeout of their step."""
    for place, rule in enumerate(rules):
        at = (*path, place)
        given = [kind for kind in _RULE_KINDS if getattr(rule, kind) is not None]
        if not given:
            yield Finding(at, "A rule needs one of `check`, `command`, `uses`.", "Say what must hold.")
        for other in given[1:]:
            said = f"A rule has both `{given[0]}` and `{other}`; it can be only one of them."
            yield Finding((*at, other), said, "Make two rules of it.", key=True)
        if rule.command is not None:
            yield from _command(rule.command, (*at, "command"))
        for key, kinds in _RULE_KEYS.items():
            name = "with_" if key == "with" else key
            if name in rule.model_fields_set and given and given[0] not in kinds:
                said = f"`{key}` means nothing for a rule with `{given[0]}`."
                yield Finding((*at, key), said, "Remove it.", key=True)
        if longest is not None and rule.timeout is not None and rule.timeout > longest:
            said = f"This rule may take longer ({format_duration(rule.timeout)}) than its step."
            yield Finding((*at, "timeout"), said, f"The step ends it after {format_duration(longest)}.", key=True)


def check_edges(steps: Mapping[str, StepBlock], paths: Mapping[str, Path]) -> Iterator[Finding]:
    """What a dependency may not require of the step it waits for."""
    for name, step in steps.items():
        for place, edge in enumerate(step.depends_on or ()):
            before = steps.get(edge.step)
            if before is not None and before.approval is not None and "failed" in edge.allow:
                said = f"`{edge.step}` is an approval, and a rejected approval never lets another step go on."
                hint = "Remove `failed` from `allow`."
                yield Finding((*paths[name], "depends_on", place, "allow"), said, hint)


def check_workflow(written: WorkflowBlock) -> Iterator[Finding]:
    """The rules and schemas of the whole run."""
    yield from check_rules(written.rules, ("rules",))
    for key, schema in (("input_schema", written.input_schema), ("output_schema", written.output_schema)):
        if schema is not None:
            yield from schema_findings(schema, (key,))


def check_handlers(
    step: StepBlock, path: Path, handlers: Registry, *, all_known: bool, declared: Collection[str] | None = None
) -> Iterator[Finding]:
    """Whether the functions that a step names exist (if all are known), and accept their inputs.

    `declared` are the fields of the run's input, which a step without `with` is given.
    """
    blocks: list[tuple[Path, StepBlock | UndoBlock | RuleBlock]] = [(path, step)]
    if step.undo is not None:
        blocks.append(((*path, "undo"), step.undo))
    for key, rules in rules_of(step).items():
        yield from check_rule_handlers(rules, (*path, key), handlers, all_known=all_known)
    for place, case in enumerate(step.switch or ()):
        at = (*path, "switch", place)
        yield from check_handlers(case, at, handlers, all_known=all_known, declared=declared)
    for at, block in blocks:
        if all_known:
            yield from _known(block, at, handlers)
        spec = handlers.get(block.uses) if block.uses is not None else None
        if spec is not None:
            yield from _fits(spec, block, at)
        if spec is not None and block is step and declared is not None and "with_" not in step.model_fields_set:
            yield from _fits_input(spec, step, at, declared)


def check_rule_handlers(
    rules: Sequence[RuleBlock], path: Path, handlers: Registry, *, all_known: bool
) -> Iterator[Finding]:
    """Whether the functions that rules name exist (if all are known), can be rules, and accept their inputs."""
    for place, rule in enumerate(rules):
        at = (*path, place)
        if all_known:
            yield from _known(rule, at, handlers)
        spec = handlers.get(rule.uses) if rule.uses is not None else None
        if spec is None:
            continue
        yield from _fits(spec, rule, at)
        if spec.runs_in == "process" or spec.transactional:
            said = f"Handler `{spec.name}` cannot be a rule: it runs in a process or a transaction of its own."
            yield Finding((*at, "uses"), said, "Name a function that runs in a thread or on the event loop.")


def _one_of(given: list[str], possible: tuple[str, ...], path: Path, what: str) -> Iterator[Finding]:
    if not given:
        kinds = ", ".join(f"`{kind}`" for kind in possible)
        yield Finding(path, f"{what} does not say what to do.", f"Add one of {kinds}.")
    for other in given[1:]:
        said = f"{what} has both `{given[0]}` and `{other}`; it can do only one thing."
        yield Finding((*path, other), said, "Make two steps of it.", key=True)


def _work(block: StepBlock | UndoBlock, path: Path) -> Iterator[Finding]:
    if block.agent is not None and block.action is None:
        yield Finding((*path, "agent"), "`agent` needs an `action`: what the agent is to do, in words.", key=True)
    if block.action is not None and block.agent is None:
        yield Finding((*path, "action"), "`action` belongs to an `agent`, and there is none.", key=True)
    if "with_" in block.model_fields_set and block.http is not None and block.http.body is not None:
        said = "The body of this request is given twice: in `http.body` and in `with`."
        yield Finding((*path, "with"), said, "Keep one of them.", key=True)
    if block.command is not None:
        yield from _command(block.command, (*path, "command"))
    if block.http is not None:
        yield from _http(block.http, (*path, "http"))


def _command(command: CommandBlock, path: Path) -> Iterator[Finding]:
    program = command.argv[0]
    if OPENING in program:
        said = "The program of a `command` cannot be an expression: data must never choose what is run."
        yield Finding((*path, "argv", 0), said, "Write its name here, and expressions in its arguments.")
    elif not program.strip():
        yield Finding((*path, "argv", 0), "The program of a `command` is empty.", "Write its name.")
    for name in command.env:
        if "=" in name or OPENING in name:
            yield Finding((*path, "env", name), f"`{name}` cannot be the name of a variable.", key=True)


def _http(http: HttpBlock, path: Path) -> Iterator[Finding]:
    if not http.url.startswith(("http://", "https://", OPENING)):
        yield Finding((*path, "url"), "`url` must start with http:// or https://.")
    for name, said in complaints(http.headers, rendered=False):
        yield Finding((*path, "headers", name), f"The header `{name}` {said}.", key=True)


def _misplaced(kind: str, written: set[str], path: Path) -> Iterator[Finding]:
    for key, hint in _FOR_WORK.items():
        if kind in {"approval", "wait", "sleep"} and key in written:
            yield Finding((*path, key), f"`{key}` means nothing for `{kind}`.", hint, key=True)
    for key, hint in _FOR_CHILDREN.items() if kind == "workflow" else ():
        if key in written:
            yield Finding((*path, key), f"`{key}` means nothing for `workflow`.", hint, key=True)
    for key, hint in _FOR_SWITCH.items() if kind == "switch" else ():
        if key in written:
            yield Finding((*path, key), f"`{key}` means nothing for `switch`.", hint, key=True)
    if kind in {"command", "http", "agent"} and "transactional" in written:
        said = f"`transactional` is for Python handlers (`uses`), not for `{kind}`."
        yield Finding((*path, "transactional"), said, key=True)


def _one_moment(step: StepBlock, path: Path) -> Iterator[Finding]:
    if step.sleep is not None and (step.sleep.for_ is None) == (step.sleep.until is None):
        said = "A `sleep` has either `for`, a duration, or `until`, a moment."
        yield Finding((*path, "sleep"), said, "Write `sleep: 2h`, or `sleep: {until: 2026-11-03T10:15Z}`.", key=True)


def _event_name(step: StepBlock, path: Path) -> Iterator[Finding]:
    if step.wait is not None and not step.wait.event.isprintable():
        yield Finding((*path, "wait", "event"), "The name of an event has printable characters only, on one line.")
    if step.wait is not None and step.wait.count is not None and step.wait.until is not None:
        said = "A wait has either `count` or `until`."
        yield Finding((*path, "wait", "until"), said, "Write `until: size(messages) >= 3 && ...`.", key=True)


def _known(block: StepBlock | UndoBlock | RuleBlock, path: Path, handlers: Registry) -> Iterator[Finding]:
    if block.uses is not None and handlers.get(block.uses) is None:
        hint = did_you_mean(block.uses, handlers.names) or LOAD_IT
        yield Finding((*path, "uses"), f"There is no handler `{block.uses}`.", hint)
    if not isinstance(block, RuleBlock) and block.agent is not None and handlers.agent(block.agent) is None:
        hint = did_you_mean(block.agent, handlers.agents) or LOAD_IT
        yield Finding((*path, "agent"), f"There is no agent `{block.agent}`.", hint)


def _fits_input(spec: HandlerSpec, step: StepBlock, path: Path, declared: Collection[str]) -> Iterator[Finding]:
    for name in spec.signature.missing(dict.fromkeys(declared)):
        said = f"Handler `{spec.name}` needs `{name}`, and the declared input has no such field."
        yield Finding((*path, "uses"), said, f"Declare it in `input`, or give step `{step.name}` a `with`.")


def _fits(spec: HandlerSpec, block: StepBlock | UndoBlock | RuleBlock, path: Path) -> Iterator[Finding]:
    if not isinstance(block.with_, dict):
        return
    takes = ", ".join(f"`{name}`" for name in spec.signature.names) or "no inputs"
    for name in spec.signature.unknown(block.with_):
        said = f"Handler `{spec.name}` has no parameter `{name}`."
        yield Finding((*path, "with", name), said, f"It takes {takes}.", key=True)
    for name in spec.signature.missing(block.with_):
        yield Finding((*path, "with"), f"Handler `{spec.name}` needs `{name}`.", f"It takes {takes}.", key=True)


KINDS = ("distinct", "four_eyes", "incompatible", "requires_role")
"""The kinds of duties; each item of `duties` has one of them."""


def gates_of(step: StepBlock) -> Iterator[tuple[str, ApprovalBlock]]:
    """The gate of a step, and the key that it is written under."""
    for key, gate in (("approval", step.approval), ("hold", step.hold)):
        if gate is not None:
            yield key, gate


def check_gates(steps: Mapping[Path, StepBlock], ancestry: Ancestry | None) -> Iterator[Finding]:
    """Every problem of the people that gates name."""
    by_name = {step.name: step for step in steps.values()}
    for path, step in steps.items():
        for key, gate in gates_of(step):
            at = (*path, key)
            for place, word in enumerate(gate.excluded):
                yield from _exclusion(word, (*at, "not", place), by_name, step.name, ancestry)
            for place, level in enumerate(gate.escalate):
                if not (level.roles or level.groups or level.approvers):
                    said = "A level of `escalate` names nobody."
                    yield Finding((*at, "escalate", place), said, "Give it `roles`, `groups` or `approvers`.")


def _exclusion(
    word: str, path: Path, steps: Mapping[str, StepBlock], gate: str, ancestry: Ancestry | None
) -> Iterator[Finding]:
    duty, colon, name = word.partition(":")
    if not colon:
        return
    if duty not in DUTIES_OF_STEPS:
        known = ", ".join(f"`{one}:STEP`" for one in DUTIES_OF_STEPS)
        yield Finding(path, f"`{word}` names no duty.", f"Write `{REQUESTER}`, {known}, or the name of a person.")
        return
    yield from _named(name, path, steps)
    step = steps.get(name)
    if step is not None and not (_can_be(duty, step) or _has_child(step)):
        yield Finding(path, f"No person has {duty} `{name}`: {_WHY_NOT[duty]}.", "Name another step, or remove it.")
    elif step is not None:
        yield from _known_in_time(step, gate, path, ancestry)


def _known_in_time(step: StepBlock, other: str, path: Path, ancestry: Ancestry | None) -> Iterator[Finding]:
    """The persons of a child are known when it has ended: a step that asks about them comes after it."""
    if _has_child(step) and ancestry is not None and not ancestry.precedes(step.name, other):
        said = f"`{other}` does not wait for `{step.name}`, and the people of its child run are known at its end."
        yield Finding(path, said, f"Let `{other}` depend on `{step.name}`, or remove it.")


_WHY_NOT = {
    "executed": "no worker runs it",
    "completed": "it is not completed manually",
    "decided": "it is neither an `approval` nor on `hold`",
}


def _cases(step: StepBlock) -> tuple[StepBlock, ...]:
    """A step and its cases, if it is a choice."""
    return (step, *(step.switch or ()))


def _has_child(step: StepBlock) -> bool:
    """Whether a step, its elements or one of its cases waits for a child run."""
    return any(one.workflow is not None and not one.workflow.detached for one in _cases(step))


def _can_be(duty: str, step: StepBlock) -> bool:
    """Whether a person may do this on the step, or below it in the same run: calls of a flow and added steps are of any
    kind."""
    if duty != "executed" and (step.flow is not None or step.then is not None):
        return True
    return any(_can_be_itself(duty, one) for one in _cases(step))


def _can_be_itself(duty: str, step: StepBlock) -> bool:
    if duty == "decided":
        return any(gates_of(step)) or step.on_exhausted == "hold"
    has_work = step.approval is None and step.wait is None and step.sleep is None and step.workflow is None
    return has_work and (duty == "executed" or (step.completion is not None and step.completion.mode == "manual"))


def _named(name: str, path: Path, steps: Mapping[str, StepBlock]) -> Iterator[Finding]:
    if name not in steps:
        yield Finding(path, f"There is no step `{name}`.", did_you_mean(name, steps))


def check_duties(
    duties: list[DutyBlock], steps: Mapping[Path, StepBlock], ancestry: Ancestry | None
) -> Iterator[Finding]:
    """Every problem of the duties of a run."""
    by_name = {step.name: step for step in steps.values()}
    for place, duty in enumerate(duties):
        at: Path = ("duties", place)
        given = [kind for kind in KINDS if getattr(duty, kind) is not None]
        if len(given) != 1:
            kinds = ", ".join(f"`{kind}`" for kind in KINDS)
            yield Finding(at, "A duty has exactly one kind.", f"Write one of {kinds}.")
            continue
        [kind] = given
        names = list(getattr(duty, kind))
        if kind != "requires_role" and len(set(names)) < 2:
            yield Finding((*at, kind), f"`{kind}` takes two steps or more.", "Name the others, or remove it.")
        for number, name in enumerate(names):
            where = (*at, kind, name if kind == "requires_role" else number)
            yield from _named(name, where, by_name)
            step = by_name.get(name)
            if step is not None and not _takes_people(kind, step):
                what = "acts" if kind == "incompatible" else "decisions"
                said = f"`{kind}` is about {what} of people, and `{name}` takes none."
                then = "Name another step." if kind == "incompatible" else "Name an `approval`, or a step on `hold`."
                yield Finding(where, said, then)
            elif step is not None and kind != "requires_role":
                others = [by_name[other] for other in dict.fromkeys(names) if other != name and other in by_name]
                yield from _enforceable(kind, step, others, where, ancestry)


def _enforceable(
    kind: str, step: StepBlock, others: Sequence[StepBlock], path: Path, ancestry: Ancestry | None
) -> Iterator[Finding]:
    """Nothing in a child asks about the people of its parent: a duty has one child at most, and it comes first."""
    if any(one.workflow is not None and one.workflow.detached for one in _cases(step)):
        said = f"`{kind}` cannot hold for `{step.name}`: nothing waits for its child run, whose people are never known."
        yield Finding(path, said, "Remove it, or let the step wait for its child.")
    for other in others:
        if _has_child(step) and _has_child(other):
            said = f"`{kind}` cannot hold for `{step.name}` and `{other.name}`: both are child runs."
            yield Finding(path, said, "Name one of them at most.")
        else:
            yield from _known_in_time(step, other.name, path, ancestry)


def _takes_people(kind: str, step: StepBlock) -> bool:
    if kind == "requires_role":
        return _can_be("decided", step) or _can_be("completed", step)
    acts = DUTIES_OF_STEPS if kind == "incompatible" else ("decided",)
    return any(_can_be(duty, step) for duty in acts) or any(one.workflow is not None for one in _cases(step))


# -- advice ------------------------------------------------------------------------------------------------------------
def gate_advice(definition: Definition) -> Iterator[Finding]:
    """Guideline 7: gates that do less than they seem to say."""
    for number, step in enumerate(definition.steps):
        for key, gate in (("approval", step.approval), ("hold", step.hold)):
            if gate is not None:
                yield from _advice(gate, step.name, ("steps", number, key))


def _advice(gate: Approval, name: str, path: Path) -> Iterator[Finding]:
    levels = gate.levels
    people = {person for level in levels for person in level.approvers}
    open_to_more = any(level.roles or level.groups or level.is_open for level in levels)
    if not open_to_more and gate.quorum > len(people):
        said = f"`{name}` asks for {gate.quorum} decisions and names {len(people)} people: it can never be approved."
        yield Finding((*path, "quorum"), said, "Name more `approvers`, or lower the `quorum`.", key=True)
    if gate.on_deadline is OnDeadline.ESCALATE and not gate.escalate:
        said = f"`{name}` escalates at its deadline, and has no further level: it is rejected instead."
        yield Finding(
            (*path, "on_deadline"), said, "Add levels: `escalate: [{roles: [boss], deadline: 4h}]`.", key=True
        )
    if gate.escalate and gate.on_deadline is not OnDeadline.ESCALATE:
        said = f"The levels of `{name}` are never reached: `on_deadline` is `{gate.on_deadline}`."
        yield Finding((*path, "escalate"), said, "Write `on_deadline: escalate`.", key=True, ignored=True)
    if gate.deadline is None and gate.on_deadline not in (OnDeadline.REJECT, OnDeadline.FAIL):
        said = f"`{name}` has no `deadline`, so that its `on_deadline: {gate.on_deadline}` has no effect."
        yield Finding((*path, "on_deadline"), said, "Add a `deadline`.", key=True, ignored=True)
    for place, level in enumerate(levels[1:-1]):
        if level.deadline is None:
            said = f"A level of `{name}` has no `deadline`: the levels after it are never reached."
            yield Finding((*path, "escalate", place), said, "Add one.")
    if gate.remind is not msgspec.UNSET and gate.deadline is not None and gate.remind >= gate.deadline:
        said = f"`{name}` ends before its first reminder."
        yield Finding((*path, "remind"), said, "Make `remind` shorter than the `deadline`.", key=True, ignored=True)
