"""Conditions and inputs of triggers, compiled: which names they may read, and what seed 000's conditions mean.

`trigger` has the name and the moment, `event` describes the event or the end of a run, `payload` is what it carries.
Seed 000 names fields of the payload alone, as in `riskScore >= 0.7`: a name that is none of these is read as a field of
the payload. The front ends compile at publication, operations evaluate.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import msgspec

from stepkeep.definition.expressions.conditions import compile_truth
from stepkeep.definition.expressions.expressions import Expression, Scope, Template, compile_template
from stepkeep.definition.expressions.template_text import OPENING

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
