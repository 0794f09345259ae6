"""Hooks of a definition as people write them: checks the blocks, and builds the kernel's values from them.

A hook names transitions (`run.failed`, `step.*`) and one thing to do. It sends nothing; the relay does. The native
front end calls it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from stepkeep.definition import bounds
from stepkeep.definition.expressions.scope import is_secret_name
from stepkeep.definition.expressions.template_text import OPENING
from stepkeep.definition.findings import Finding, Path, did_you_mean
from stepkeep.definition.native.written import HookBlock, WorkflowBlock
from stepkeep.definition.python.registry import Registry
from stepkeep.kernel.definition import Hook
from stepkeep.kernel.machine.states import RunState, StepState
from stepkeep.network.failures import RequestFailed
from stepkeep.network.urls import parse

KINDS = {"uses": "handler", "command": "command", "message": "message", "webhook": "webhook"}
"""What a hook does, by its key: the kind of sink that does it."""

STATES = {"run": tuple(map(str, RunState)), "step": tuple(map(str, StepState))}


class _Placed(NamedTuple):
    block: HookBlock
    path: Path
    step: str | None


def _placed(written: WorkflowBlock) -> list[_Placed]:
    """The hooks of the workflow first, then those of each step."""
    found = [_Placed(block, ("hooks", place), None) for place, block in enumerate(written.hooks)]
    for number, step in enumerate(written.steps):
        for place, block in enumerate(step.hooks):
            found.append(_Placed(block, ("steps", number, "hooks", place), step.name))
    return found


def _names(placed: list[_Placed]) -> list[str]:
    """The names that are written; the others are numbered, after their step if they are of one."""
    found, seen = [], Counter[str]()
    for one in placed:
        stem = "hook" if one.step is None else one.step
        seen[stem] += one.block.name is None
        found.append(f"{stem}-{seen[stem]}" if one.block.name is None else one.block.name)
    return found


def check_hooks(written: WorkflowBlock) -> Iterator[Finding]:
    """Problems of the hooks of one definition."""
    placed = _placed(written)
    if len(placed) > bounds.MOST_HOOKS:
        said = f"A definition has at most {bounds.MOST_HOOKS} hooks with those of its steps, and not {len(placed)}."
        yield Finding(
            placed[bounds.MOST_HOOKS].path, said, "Take several states into one hook: `on: [failed, skipped]`."
        )
    names = _names(placed)
    counted = Counter(names)
    for one, name in zip(placed, names, strict=True):
        if counted[name] > 1:
            yield Finding(one.path, f"Two hooks are named `{name}`.", "Give each a `name` of its own.")
        yield from _check(one)


def _check(one: _Placed) -> Iterator[Finding]:
    block, path = one.block, one.path
    given = [key for key in KINDS if getattr(block, key) is not None]
    if len(given) != 1:
        said = f"A hook has one of {', '.join(f'`{key}`' for key in KINDS)}."
        yield Finding(path, said, f"This one has {' and '.join(given) or 'none'}.")
    for place, text in enumerate(block.on):
        yield from _check_event(text, one.step is not None, (*path, "on", place))
    if block.command is not None:
        if block.command.cwd is not None and not block.command.cwd.startswith("/"):
            yield Finding((*path, "command", "cwd"), "`cwd` of a hook is an absolute path.", "Write it from `/` on.")
        for place, text in enumerate(block.command.argv):
            if OPENING in text or "\0" in text or (place == 0 and not text.strip()):
                said = "An argument of a hook is plain text, without expressions."
                yield Finding((*path, "command", place), said, "The program reads the event from its standard input.")
    if block.webhook is not None:
        try:
            parse(block.webhook.url)
        except RequestFailed as problem:
            yield Finding(
                (*path, "webhook", "url"), f"`url`: {problem}.", "Write an address such as https://shop.example/hooks."
            )
        for name in block.webhook.secrets:
            if not is_secret_name(name):
                said = "`secrets` has names of secrets, with letters, digits and _, and never their values."
                yield Finding((*path, "webhook", "secrets"), said, "Workers read the values.")


def _check_event(text: str, is_of_step: bool, path: Path) -> Iterator[Finding]:
    """One name of `on`: `run.STATE` or `step.STATE` for a workflow, STATE for a step, `*` for every state."""
    entity, dot, state = text.partition(".")
    if is_of_step:
        entity, dot, state = ("step", ".", text) if not dot else (entity, dot, state)
        if entity != "step":
            yield Finding(
                path,
                f"A hook of a step is for states of this step, and not for `{text}`.",
                "Write it below `hooks` of the workflow.",
            )
            return
    if text == "*":
        return
    if entity not in STATES or not dot:
        known = [f"{kind}.{one}" for kind, states in STATES.items() for one in states]
        hint = did_you_mean(text, known) or "Write it as in `run.failed` or `step.*`."
        yield Finding(path, f"`{text}` is no transition.", hint)
    elif state != "*" and state not in STATES[entity]:
        hint = did_you_mean(state, STATES[entity]) or f"There are: {', '.join(STATES[entity])}."
        yield Finding(path, f"A {entity} has no state `{state}`.", hint)


def check_hook_handlers(written: WorkflowBlock, handlers: Registry) -> Iterator[Finding]:
    """Functions that hooks name and that are not registered."""
    for one in _placed(written):
        name = one.block.uses
        if name is not None and name not in handlers.listeners:
            hint = did_you_mean(name, handlers.listeners) or f'Register it: @sk.hook("{name}").'
            yield Finding((*one.path, "uses"), f"There is no function `{name}` for hooks.", hint)


def hooks_of(written: WorkflowBlock) -> tuple[Hook, ...]:
    """The hooks of a definition that passed every check."""
    placed = _placed(written)
    return tuple(_build(one, name) for one, name in zip(placed, _names(placed), strict=True))


def _build(one: _Placed, name: str) -> Hook:
    block = one.block
    [key] = [key for key in KINDS if getattr(block, key) is not None]
    return Hook(
        name=name,
        on=tuple(sorted({_event(text, one.step is not None) for text in block.on})),
        kind=KINDS[key],
        options=_options(key, block),
        step=msgspec.UNSET if one.step is None else one.step,
    )


def _event(text: str, is_of_step: bool) -> str:
    return f"step.{text}" if is_of_step and not text.startswith("step.") else text


def _options(key: str, block: HookBlock) -> dict[str, object]:
    if key == "uses":
        return {"handler": block.uses}
    options: dict[str, object] = getattr(block, key).model_dump()
    return {name: value for name, value in options.items() if value is not None}
