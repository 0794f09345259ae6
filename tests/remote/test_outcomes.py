"""Outcomes of remote workers as JSON: nothing that a handler asks for is lost on the way."""

from __future__ import annotations

import msgspec
import pytest

from stepkeep.kernel.machine.outcomes import (
    Completed,
    Emitted,
    Failed,
    Outcome,
    Released,
    RulesFailed,
    TimedOut,
    Waiting,
)
from stepkeep.kernel.machine.states import Category, ErrorClass
from stepkeep.operations.remote.asked_calls import Proposed
from stepkeep.operations.remote.work_outcomes import KINDS, outcome_json, outcome_of

OUTCOMES: tuple[Outcome, ...] = (
    Completed(output=b'{"a":1}', token="0" * 64, cost=b'{"usd":1}', emit=(Emitted("told", b"[1]"),)),
    Waiting(event="vote", timeout=5, takes_timeouts=False, accepts="message.yes", count=3),
    Waiting(event="vote", enough="size(messages) > 2"),
    Failed(error="no", category=Category.EXTERNAL, delay=7, final=True, unrun=True, error_class=ErrorClass.TRANSPORT),
    Proposed(steps=b'[{"name":"a"}]', output=b"1"),
    TimedOut(error="late"),
    Released(reason="full"),
    RulesFailed(error="wrong"),
)


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: type(outcome).__name__)
def test_an_outcome_is_the_same_after_its_way_to_the_service(outcome: Outcome) -> None:
    sent = msgspec.json.encode(outcome_json(outcome))
    assert outcome_of(msgspec.json.decode(sent)) == outcome


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_an_outcome_is_told(kind: str) -> None:
    made, fields = KINDS[kind]
    assert {*fields.values(), *Outcome.__struct_fields__} == set(made.__struct_fields__)
