"""Triggers as people write them: checks a block, and builds the kernel's value from it.

The native front end, dialects, the engine (`triggers.add`) and the command line call it. It computes no moment.

Conditions and inputs of triggers, compiled: which names they may read, and what seed 000's conditions mean.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from pydantic import ValidationError

from stepkeep.definition.expressions.conditions import compile_truth
from stepkeep.definition.expressions.expressions import Expression, InvalidExpression, Scope, Template, compile_template
from stepkeep.definition.expressions.template_text import OPENING
from stepkeep.definition.findings import Finding, Path
from stepkeep.definition.native.written import CatchUpBlock, TriggerBlock
from stepkeep.definition.text.complaints import complaints
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.states import RunState
from stepkeep.kernel.triggers import CatchUp, Ending, Fold, Gap, Keep, Overlap, Schedule, TriggerSpec
from stepkeep.schedules.cron import InvalidSchedule
from stepkeep.schedules.moments import checked

TRIGGER_FIELDS = ("name", "moment")
EVENT_FIELDS = ("id", "name", "time", "run", "workflow", "state", "error", "correlation_id")
FACTS: dict[str, tuple[str, ...] | None] = {"trigger": TRIGGER_FIELDS, "event": EVENT_FIELDS, "payload": None}

_WORDS = frozenset({"true", "false", "null", "in", "has", *FACTS})
_TOKEN = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[A-Za-z_][A-Za-z0-9_]*|.""", re.DOTALL)
_ITEM = re.compile(r"\.(?:all|exists|exists_one|map|filter)\s*\(\s*([A-Za-z_][A-Za-z0-9_]*)\s*,")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder(order="sorted").encode


def compile_condition(text: str) -> Expression:
    """The condition of a trigger, with or without `${{ }}`; raises InvalidExpression."""
    return _condition(text)


def compile_trigger_inputs(inputs: Any) -> Template:
    """The inputs that a trigger gives to its runs; raises InvalidExpression."""
    return _inputs(_encode(inputs))


@lru_cache(maxsize=1024)
def _condition(text: str) -> Expression:
    return compile_truth(text if OPENING in text else of_payload(text), Scope(facts=FACTS))


@lru_cache(maxsize=1024)
def _inputs(encoded: bytes) -> Template:
    return compile_template(_decode(encoded), Scope(facts=FACTS))


def of_payload(text: str) -> str:
    """A condition whose bare names are fields of the payload.

    >>> of_payload("riskScore >= 0.7 && payload.riskLevel >= 'high'")
    "payload.riskScore >= 0.7 && payload.riskLevel >= 'high'"
    """
    items = set(_ITEM.findall(text))
    tokens = [found.group() for found in _TOKEN.finditer(text)]
    written = []
    for place, token in enumerate(tokens):
        before = next((one for one in reversed(tokens[:place]) if not one.isspace()), "")
        after = next((one for one in tokens[place + 1 :] if not one.isspace()), "")
        is_field = _NAME.fullmatch(token) and token not in _WORDS | items and before != "." and after != "("
        written.append(f"payload.{token}" if is_field and not before[-1:].isdigit() else token)
    return "".join(written)


SOURCES = ("schedule", "every", "event", "ended")


def check_triggers(blocks: Sequence[TriggerBlock], where: Path) -> Iterator[Finding]:
    """Problems of the triggers of one definition."""
    names = Counter(trigger_names(blocks))
    for place, (block, name) in enumerate(zip(blocks, trigger_names(blocks), strict=True)):
        path = (*where, place)
        if names[name] > 1:
            yield Finding(path, f"Two triggers are named `{name}`.", "Give each a `name` of its own.")
        yield from check_trigger(block, path)


def check_trigger(block: TriggerBlock, path: Path) -> Iterator[Finding]:
    """Problems of one trigger."""
    given = [name for name in SOURCES if getattr(block, name) is not None]
    if len(given) != 1:
        said = "A trigger has one of `schedule`, `every`, `event` and `ended`."
        yield Finding(path, said, f"This one has {' and '.join(given) or 'none'}.")
        return
    [kind] = given
    timed = kind in ("schedule", "every")
    for key in ("zone", "gap", "fold", "jitter", "catch_up"):
        if key in block.model_fields_set and not timed:
            yield Finding((*path, key), f"`{key}` means nothing without a schedule.", "Remove it.", key=True)
    if block.condition is not None and timed:
        yield Finding((*path, "condition"), "A schedule has no condition.", "Decide in a step.", key=True)
    if timed:
        try:
            checked(_schedule(block))
        except InvalidSchedule as problem:
            key = "zone" if "time zone" in problem.message else kind
            at = () if key == "zone" and "zone" not in block.model_fields_set else (key,)
            yield Finding((*path, *at), problem.message, problem.hint, inside=max(0, (problem.column or 1) - 1))
    if block.condition is not None:
        try:
            compile_condition(block.condition)
        except InvalidExpression as error:
            hint = "Compare fields of the payload, as in `riskScore >= 0.7`."
            for one in error.findings:
                yield one._replace(path=(*path, "condition"), hint=one.hint or hint)
    if block.with_ is not None:
        try:
            compile_trigger_inputs(block.with_)
        except InvalidExpression as error:
            yield from (one._replace(path=(*path, "with", *one.path)) for one in error.findings)


def trigger_names(blocks: Sequence[TriggerBlock]) -> list[str]:
    """The names of triggers in their definition: those that are written, else the kind and a number if there are
    several."""
    kinds = [next((name for name in SOURCES if getattr(block, name) is not None), "trigger") for block in blocks]
    kinds = ["schedule" if kind == "every" else kind for kind in kinds]
    found, seen = [], Counter[str]()
    for block, kind in zip(blocks, kinds, strict=True):
        seen[kind] += block.name is None
        default = kind if seen[kind] == 1 else f"{kind}-{seen[kind]}"
        found.append(default if block.name is None else block.name)
    return found


def triggers_of(blocks: Sequence[TriggerBlock]) -> tuple[TriggerSpec, ...]:
    """The triggers of a definition that passed every check."""
    return tuple(build_trigger(block, name) for block, name in zip(blocks, trigger_names(blocks), strict=True))


def build_trigger(block: TriggerBlock, name: str) -> TriggerSpec:
    timed = block.schedule is not None or block.every is not None
    ended = block.ended
    return TriggerSpec(
        name=name,
        schedule=checked(_schedule(block)) if timed else None,
        event=block.event,
        ended=None if ended is None else Ending(workflow=ended.workflow, states=tuple(map(RunState, ended.states))),
        condition=block.condition,
        inputs=block.with_,
        overlap=Overlap(block.overlap or ("skip" if timed else "allow")),
        catch_up=_catch_up(block.catch_up),
    )


def read_trigger(given: Mapping[str, Any], name: str) -> TriggerSpec:
    """A trigger from a mapping of the same form as in a definition; raises InvalidInput with every problem."""
    try:
        block = TriggerBlock.model_validate(dict(given))
    except ValidationError as error:
        problems = complaints(error, dict(given), TriggerBlock)
    else:
        problems = list(check_trigger(block, ()))
        if not problems:
            return build_trigger(block, name)
    said = [
        f"{'.'.join(map(str, one.path))}: " * bool(one.path) + f"{one.message} {one.hint}".strip() for one in problems
    ]
    raise InvalidInput(f"the trigger {name} is wrong. {' '.join(said[:5])}")


def _schedule(block: TriggerBlock) -> Schedule:
    return Schedule(
        cron=block.schedule,
        every=block.every,
        zone=block.zone,
        gap=None if block.gap is None else Gap(block.gap),
        fold=None if block.fold is None else Fold(block.fold),
        jitter=block.jitter,
    )


def _catch_up(block: CatchUpBlock) -> CatchUp:
    return CatchUp(keep=Keep(block.keep), most=block.most, window=block.window, spread=block.spread)
