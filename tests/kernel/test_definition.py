"""A definition is a value: it survives its own JSON, and equal definitions have equal names."""

from __future__ import annotations

from stepkeep.kernel.definition import Definition, decode_definition, digest_of, encode_definition

TRIGGER = {"event": "growth.churn_signal", "condition": "riskScore >= 0.7"}
ABOUT = {"domainsInvolved": ["growth", "product"], "owner": {"name": "growth-team"}}


def test_what_a_dialect_says_beside_the_plan_survives_storage() -> None:
    definition = Definition(name="w", version=1, steps=(), trigger=TRIGGER, about=ABOUT)
    assert decode_definition(encode_definition(definition)) == definition


def test_a_definition_stored_before_triggers_were_kept_can_still_be_read() -> None:
    assert decode_definition(b'{"name":"w","version":1,"steps":[]}').trigger is None


def test_another_trigger_is_another_definition() -> None:
    plain, triggered = (Definition(name="w", version=1, steps=(), trigger=said) for said in (None, TRIGGER))
    assert digest_of(encode_definition(plain)) != digest_of(encode_definition(triggered))
