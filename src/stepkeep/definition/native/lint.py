"""Advice on a correct definition that may still cause trouble: seed 000 section 6, one function per guideline.

Warnings stop nothing. They consider written values, not defaults. `stepkeep check` shows them all; those on fields that
have no effect are shown wherever a definition enters.

Finds texts in a definition that look like secrets: a definition is stored, shown and exported.

Finds where an expression reads the output of a step that may have none: it may be skipped, or fail and be tolerated.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET
from pydantic import BaseModel

from stepkeep.definition.durations import format_duration
from stepkeep.definition.expressions.template_text import OPENING, Embedded, split
from stepkeep.definition.findings import MAX_PROBLEMS, Finding, Path, texts_in
from stepkeep.definition.native.checks import gate_advice, rules_of
from stepkeep.definition.native.graph import Ancestry
from stepkeep.definition.native.growth import case_advice
from stepkeep.definition.native.written import RuleBlock, StepBlock, UndoBlock, WorkflowBlock
from stepkeep.kernel.definition import Definition, Effect, OnDeadline, StepDefinition, Worked, templates_of
from stepkeep.kernel.machine.states import OnFailure, StepState

_STEP = r"""\bsteps(?:\[["']((?:[^"'\\]|\\.)*)["']\]|\.([A-Za-z_][A-Za-z0-9_]*))"""
_READ = re.compile(_STEP + r"\.output\b")
_ASKED = re.compile(rf"has\(\s*{_STEP}\.output\b|{_STEP}\.state\b")
_TRUTHS = ("condition", "expression", "until", "as_long_as", "when", "length")
"""Fields whose text is an expression as a whole."""


class MissingOutput(NamedTuple):
    """A step (None: the run itself) that reads the output of another one, which may have none."""

    place: int | None
    reader: str | None
    read: str


def missing_outputs(definition: Definition) -> Iterator[MissingOutput]:
    """Every such place, in the order of the steps; the output and the rules of the run last."""
    uncertain = _may_have_none(definition)
    if not uncertain:
        return
    required = {
        step.name: [edge.step for edge in step.depends_on if edge.allow == (StepState.SUCCEEDED,)]
        for step in definition.steps
    }
    for place, step in enumerate(definition.steps):
        names = [name for name in _reads(step) if name in uncertain and name != step.name]
        certain = _required_by(step.name, required) if names else frozenset()
        yield from (MissingOutput(place, step.name, name) for name in names if name not in certain)
    final = {"output": definition.output, "rules": msgspec.to_builtins(definition.rules)}
    yield from (MissingOutput(None, None, name) for name in _read_in(final) if name in uncertain)


def _may_have_none(definition: Definition) -> set[str]:
    """The steps that may end without an output in a run that goes on."""
    followers: dict[str, list[str]] = defaultdict(list)
    for step in definition.steps:
        for edge in step.depends_on:
            if StepState.SKIPPED not in edge.allow:
                followers[edge.step].append(step.name)
    front = [step.name for step in definition.steps if may_skip(step)]
    found = set(front)
    while front:
        front = [name for one in front for name in followers[one] if name not in found]
        found.update(front)
    return found


def may_skip(step: StepDefinition) -> bool:
    """Whether a step may end as skipped, or as failed, in a run that goes on."""
    is_tolerated = step.on_failure in (OnFailure.SKIP, OnFailure.CONTINUE)
    return (
        step.condition is not None
        or is_tolerated
        or (step.approval is not None and step.approval.on_deadline is OnDeadline.SKIP)
    )


def _required_by(name: str, required: dict[str, list[str]]) -> frozenset[str]:
    """The steps that have succeeded whenever this one runs."""
    found, front = set[str](), [name]
    while front:
        front = [before for one in front for before in required.get(one, ()) if before not in found]
        found.update(front)
    return frozenset(found)


def _reads(step: StepDefinition) -> list[str]:
    asked = set() if step.condition is None else _names(_ASKED, step.condition)
    return [name for name in _read_in(msgspec.to_builtins(step)) if name not in asked]


def _read_in(value: Any) -> list[str]:
    """The steps whose outputs the expressions in plain data read without asking."""
    found: dict[str, None] = {}
    todo: list[tuple[str, Any]] = [("", value)]
    while todo:
        key, part = todo.pop()
        if isinstance(part, dict):
            todo += part.items()
        elif isinstance(part, list | tuple):
            todo += [(key, one) for one in part]
        elif isinstance(part, str):
            for text in _expressions(key, part):
                asked = _names(_ASKED, text)
                found.update((name, None) for name in sorted(_names(_READ, text)) if name not in asked)
    return list(found)


def _expressions(key: str, text: str) -> list[str]:
    if OPENING in text:
        return [piece.source for piece in split(text) if isinstance(piece, Embedded)]
    return [text] if key in _TRUTHS else []


def _names(pattern: re.Pattern[str], text: str) -> set[str]:
    return {next(name for name in found.groups() if name) for found in pattern.finditer(text)}


SHORTEST = 8
HINT = "Write `${{ secret.NAME }}` and give the value to the worker: it is then stored nowhere."

_NAMES = re.compile(
    r"passw(or)?d|passphrase|secret|token|api.?key|private.?key|credential|^authorization$", re.IGNORECASE
)
_FORMS = re.compile(
    r"\b(AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{20,}|xox[abpr]-[A-Za-z0-9-]{10,}|[rs]k_live_[A-Za-z0-9]{10,})"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)


def literal_secrets(step: StepBlock, path: Path) -> Iterator[Finding]:
    """One finding for each text of a step and its undo that looks like a secret."""
    blocks: list[tuple[Path, StepBlock | UndoBlock | RuleBlock]] = [(path, step)]
    if step.undo is not None:
        blocks.append(((*path, "undo"), step.undo))
    blocks += [((*path, key, place), rule) for key, rules in rules_of(step).items() for place, rule in enumerate(rules)]
    for at, block in blocks:
        parts: dict[str, Any] = {"with": block.with_}
        if block.command is not None:
            parts["command"] = {"argv": block.command.argv, "env": block.command.env}
        if not isinstance(block, RuleBlock) and block.http is not None:
            parts["http"] = {"url": block.http.url, "headers": block.http.headers, "body": block.http.body}
        for where, name in _suspicious(parts):
            said = f"`{name}` of step `{step.name}` looks like a secret, and a definition is stored and shown."
            yield Finding((*at, *where), said, HINT)


def _suspicious(value: Any) -> Iterator[tuple[Path, str]]:
    for path, part in texts_in(value):
        if OPENING not in part and path:
            name = next((str(key) for key in reversed(path) if isinstance(key, str)), "")
            if _FORMS.search(part) or _has_password(part) or (_NAMES.search(name) and _is_value(part)):
                yield path, name


def _is_value(text: str) -> bool:
    """Whether a text may be a secret: one word, perhaps behind a scheme such as Bearer, and not short."""
    words = text.split(" ")
    return len(words) <= 2 and len(words[-1]) >= SHORTEST


def _has_password(text: str) -> bool:
    if "://" not in text:
        return False
    try:
        return bool(urlsplit(text).password)
    except ValueError:
        return False


MANY_STEPS = 10
LOOK_ALIKE = re.compile(r"\$\{\s*((?:input|steps)\b[^{}]*?)\s*\}|(?<!\$)\{\{\s*((?:input|steps)\b[^{}]*?)\s*\}\}")
"""An expression in the marks of other tools."""

MOST_NAMED = 5
"""How many steps one finding names."""


def lint(written: WorkflowBlock, definition: Definition, ancestry: Ancestry) -> list[Finding]:
    """All advice on one definition."""
    return [
        *_run_without_timeout(written),
        *_step_without_timeout(written, definition),
        *_wait_without_deadline(definition),
        *_child_without_deadline(definition),
        *_many_steps(definition),
        *_deadline_beyond_timeout(definition),
        *_write_without_undo(definition),
        *_irreversible_without_approval(definition, ancestry),
        *gate_advice(definition),
        *_nothing_to_take_back(definition),
        *_condition_that_skips_others(definition),
        *_failure_that_is_never_seen(definition),
        *_output_that_may_not_exist(definition),
        *_literal_secrets(written),
        *_look_alikes(written),
        *(advice for number, step in enumerate(written.steps) for advice in case_advice(step, _at(number))),
    ]


def work_of(definition: Definition) -> Iterator[tuple[Path, StepDefinition]]:
    """The steps that workers run, with their places: the cases of a choice stand for their step."""
    for number, step in enumerate(definition.steps):
        templates = templates_of(step)
        for place, one in enumerate(templates):
            yield _at(number) if one is step else ("steps", number, "switch", place), one


def _blocks(written: WorkflowBlock) -> Iterator[tuple[Path, StepBlock]]:
    """The same, as they are written."""
    for number, step in enumerate(written.steps):
        if step.switch is None:
            yield _at(number), step
        for place, case in enumerate(step.switch or ()):
            yield ("steps", number, "switch", place), case


def _at(number: int, *rest: str) -> Path:
    return ("steps", number, *rest)


def _run_without_timeout(written: WorkflowBlock) -> Iterator[Finding]:
    """Guideline 1: set timeouts for everything."""
    if written.timeout is None:
        said = "The workflow has no `timeout`: a run that is stuck stays so forever."
        yield Finding(("workflow",), said, "Add one, for example `timeout: 1h`.", key=True)


def _step_without_timeout(written: WorkflowBlock, definition: Definition) -> Iterator[Finding]:
    """Guideline 1: set timeouts for everything."""
    for (at, step), (_, built) in zip(_blocks(written), work_of(definition), strict=True):
        said_by_handler = built.timeout != StepDefinition(name="", order=0).timeout
        if built.executor is not None and step.timeout is None and not said_by_handler:
            said = f"Step `{step.name}` has no `timeout` of its own; each attempt may take 5m."
            yield Finding((*at, "name"), said, "Add the time it should need at most.")


def _wait_without_deadline(definition: Definition) -> Iterator[Finding]:
    """Guideline 1, for waits on people and messages."""
    for number, step in enumerate(definition.steps):
        for key, waiting in (("approval", step.approval), ("hold", step.hold), ("wait", step.wait)):
            is_asleep = step.wait is not None and step.wait.sleeps is True
            if waiting is not None and waiting.deadline is None and not is_asleep:
                said = f"`{key}` of step `{step.name}` has no `deadline`: it may wait forever."
                yield Finding(_at(number, key), said, "Add one, for example `deadline: 24h`.", key=True)
        if step.completion == "manual" and step.completion_deadline is None:
            said = f"The manual completion of step `{step.name}` has no `deadline`: it may wait forever."
            hint = "Write `completion: {mode: manual, deadline: 24h}`."
            yield Finding(_at(number, "completion"), said, hint, key=True)


def _child_without_deadline(definition: Definition) -> Iterator[Finding]:
    """Guideline 1, for child runs."""
    for at, step in work_of(definition):
        child = step.child
        is_bounded = step.growth is not UNSET and step.growth.deadline is not None
        if child is not UNSET and child.detached is not True and child.deadline is None and not is_bounded:
            said = f"`workflow` of step `{step.name}` has no `deadline`: it may wait forever."
            hint = f"Write `workflow: {{name: {child.workflow}, deadline: 1h}}`."
            yield Finding((*at, "workflow"), said, hint, key=True)


def _many_steps(definition: Definition) -> Iterator[Finding]:
    """Guideline 5: keep workflows under 10 steps."""
    if (count := len(definition.steps)) >= MANY_STEPS:
        said = f"{count} steps are hard to follow; keep a workflow under {MANY_STEPS}."
        yield Finding(("steps",), said, "Make several workflows of it.", key=True)


def _deadline_beyond_timeout(definition: Definition) -> Iterator[Finding]:
    """Guideline 1: a deadline that the timeout of the run cuts short."""
    if definition.timeout is None:
        return
    for number, step in enumerate(definition.steps):
        deadlines = {
            "approval": step.approval.deadline if step.approval else None,
            "wait": step.wait.deadline if step.wait else None,
            "completion": step.completion_deadline,
        }
        for key, deadline in deadlines.items():
            if deadline is not None and deadline > definition.timeout:
                limit = format_duration(definition.timeout)
                said = f"The run ends before the `deadline` of step `{step.name}`: its `timeout` is {limit}."
                yield Finding(_at(number, key), said, "Make the deadline shorter or the timeout longer.", key=True)


def _write_without_undo(definition: Definition) -> Iterator[Finding]:
    """Guideline 3: compensations are for mutations, so a mutation needs one. An unknown effect counts as a write."""
    unstated = unstated_writes(definition)
    for at, step in work_of(definition):
        if step.undo is not None or isinstance(step.growth, Worked):
            # What a flow calls or a handler adds is undone; the step itself cannot have an undo.
            continue
        if step.effect is Effect.WRITE:
            said = f"Step `{step.name}` changes something and has no `undo`: a rollback stays partial."
            yield Finding((*at, "effect"), said, "Add one, or say `effect: irreversible`.", key=True)
        elif step.effect is Effect.UNKNOWN and step.name in unstated:
            said = f"Step `{step.name}` has neither `undo` nor `effect`: it counts as a write that is not undone."
            yield Finding((*at, "name"), said, "Add an `undo`, or say `effect: read` if it changes nothing.")


def unstated_writes(definition: Definition) -> frozenset[str]:
    """The steps of unknown effect that a rollback of this workflow would leave behind.

    A single last step is none of them: every other step has settled before it, so no failure follows its success.
    """
    if not definition.compensates:
        return frozenset()
    last = {step.name for step in definition.steps} - {e.step for step in definition.steps for e in step.depends_on}
    exempt = last if len(last) == 1 and not definition.rules else frozenset[str]()
    return frozenset(step.name for step in definition.work if step.effect is Effect.UNKNOWN) - exempt


def _irreversible_without_approval(definition: Definition, ancestry: Ancestry) -> Iterator[Finding]:
    """Guideline 7: use approval gates for irreversible actions."""
    gates = [step.name for step in definition.steps if step.approval is not None]
    for at, step in work_of(definition):
        guarded = any(ancestry.precedes(gate, step.name) for gate in gates)
        if step.effect is Effect.IRREVERSIBLE and not guarded:
            said = f"Step `{step.name}` cannot be taken back and no gate approves it."
            yield Finding((*at, "effect"), said, "Put an `approval` step before it.", key=True)


def _nothing_to_take_back(definition: Definition) -> Iterator[Finding]:
    """Guideline 4: a failure path that leads nowhere."""
    if definition.on_failure is OnFailure.COMPENSATE and not any(step.undo for step in definition.work):
        said = "`on_failure: compensate` has nothing to take back: no step has an `undo`."
        yield Finding(("on_failure",), said, "Add `undo` to the steps that change something.")


def _condition_that_skips_others(definition: Definition) -> Iterator[Finding]:
    """Guideline 4: a false condition skips every step that requires the success of the skipped one."""
    # Each of them walks the graph: no more of them than are shown.
    for number, name, skipped in islice(skip_cascades(definition), MAX_PROBLEMS):
        names = ", ".join(f"`{each}`" for each in skipped[:MOST_NAMED])
        more = f" and {len(skipped) - MOST_NAMED} more" if len(skipped) > MOST_NAMED else ""
        are = "is" if len(skipped) == 1 else "are"
        said = f"If the condition of step `{name}` is false, {names}{more} {are} skipped too; the run still succeeds."
        hint = f"Depend on `{{step: {name}, allow: [skipped]}}` where a step should run all the same."
        yield Finding(_at(number, "if"), said, hint, key=True)


def _output_that_may_not_exist(definition: Definition) -> Iterator[Finding]:
    """No guideline of the seed: the expression fails, after everything before it was done."""
    for place, reader, read in islice(missing_outputs(definition), MAX_PROBLEMS):
        who = "The workflow" if reader is None else f"Step `{reader}`"
        said = f"{who} reads the output of `{read}`, which has none if it is skipped or fails."
        yield Finding(("workflow",) if place is None else _at(place, "name"), said, ask_first(read))


def ask_first(name: str) -> str:
    """How to read an output that may not exist."""
    output = f"steps[{json.dumps(name, ensure_ascii=False)}].output"
    return f"Write `${{{{ has({output}) ? {output} : null }}}}`, or ask in its `if`."


def _look_alikes(written: WorkflowBlock) -> Iterator[Finding]:
    """No guideline of the seed: `${ … }` and `{{ … }}` are taken as text, and other tools read them."""
    for at, step in _blocks(written):
        parts = {"with": step.with_, "command": step.command, "http": step.http}
        for key, part in parts.items():
            value = part.model_dump() if isinstance(part, BaseModel) else part
            for text in _texts(value):
                if (found := LOOK_ALIKE.search(text)) is not None:
                    said = f"`{found[0][:60]}` in step `{step.name}` is taken as text, not as an expression."
                    hint = f"Write `${{{{ {found[1] or found[2]} }}}}` if you mean the value."
                    yield Finding((*at, key), said, hint, key=True)


def _texts(value: object) -> Iterator[str]:
    """Every text in a value; iterative, because the value may be deep."""
    todo = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            todo += one.values()
        elif isinstance(one, list | tuple):
            todo += one


def _literal_secrets(written: WorkflowBlock) -> Iterator[Finding]:
    """No guideline of the seed: a secret in a definition is stored forever."""
    for at, step in _blocks(written):
        yield from literal_secrets(step, at)


def skip_cascades(definition: Definition) -> Iterator[tuple[int, str, list[str]]]:
    """Each step with a condition that others require: its place, its name, and the steps that are skipped with it."""
    requiring: dict[str, list[str]] = defaultdict(list)
    for step in definition.steps:
        for edge in step.depends_on:
            if StepState.SKIPPED not in edge.allow:
                requiring[edge.step].append(step.name)
    for number, step in enumerate(definition.steps):
        if step.condition is not None and requiring[step.name]:
            yield number, step.name, _reached_from(step.name, requiring)


def _reached_from(name: str, requiring: Mapping[str, Sequence[str]]) -> list[str]:
    """The steps that are skipped whenever this one is, nearest first."""
    reached, front = dict[str, None](), [name]
    while front:
        front = [after for one in front for after in requiring.get(one, ()) if after not in reached]
        reached |= dict.fromkeys(front)
    return list(reached)


def _failure_that_is_never_seen(definition: Definition) -> Iterator[Finding]:
    """Guideline 4: a dependency that allows a failure which ends the run before it matters."""
    policies = {step.name: step.on_failure for step in definition.steps}
    for number, step in enumerate(definition.steps):
        for place, edge in enumerate(step.depends_on):
            if StepState.FAILED in edge.allow and policies[edge.step] is not OnFailure.CONTINUE:
                said = f"`{step.name}` never runs after `{edge.step}` has failed: that failure ends the run."
                path = (*_at(number, "depends_on"), place)
                yield Finding(path, said, f"Add `on_failure: continue` to `{edge.step}`.")
