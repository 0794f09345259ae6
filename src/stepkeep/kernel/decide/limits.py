"""Limits of steps by key: how many run at once, and how fast they begin. Pure rules; rows come from the caller.

A place is given under the lock of its key: `take` counts what is held, and charges a rate by the generic cell rate
algorithm. The journal of the claim has what was counted, so that a key can be replayed by the numbers of its grants.
`execution` checks that a claim has a place under each limit of its step; `operations/limits/limited_claims.py` takes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from stepkeep.kernel.definition import SECOND, Limit
from stepkeep.kernel.machine.events import LimitGrant
from stepkeep.kernel.machine.rows import Limited, Step
from stepkeep.kernel.machine.states import Phase
from stepkeep.kernel.plan import PlannedStep


class LimitRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """How much may run under a key, and begin: `rate` units in `period` microseconds, `burst` of them at once."""

    running: int | None = None
    rate: int | None = None
    period: int = SECOND
    burst: int = 1


class Demand(msgspec.Struct, frozen=True, gc=False):
    """What a claim asks of one limit. `units` is 0 if its rate was charged for this attempt before."""

    limit: Limit
    key: str
    units: int


class KeyUse(msgspec.Struct):
    """The row of a key while claims are chosen under its lock."""

    seq: int
    held: int
    tat: int
    freed: tuple[int, ...] = ()


class Full(msgspec.Struct, frozen=True, gc=False):
    """There is no place. `due_at`: when the rate has one; None if a claim must end first."""

    due_at: int | None = None


def limits_of(planned: PlannedStep) -> tuple[Limit, ...]:
    """The limits that the claims of a step count under. Undo steps and the final check have none."""
    return (planned.definition.limits or ()) if planned.phase is Phase.MAIN else ()


def asked_of(planned: PlannedStep, step: Step) -> list[Demand]:
    """What the next claim of a step asks of each of its limits. A rate is charged once for an attempt: not again after
    a wait, a release or a misfit."""
    note, limits = step.note, limits_of(planned)
    asked = () if note is None else note.limited
    if len(asked) != len(limits):
        asked = tuple([Limited("", _plain_units(limit)) for limit in limits])
    is_paid = note is not None and note.paid == step.attempts + 1
    return [Demand(limit, one.key, 0 if is_paid else one.units) for limit, one in zip(limits, asked, strict=True)]


def _plain_units(limit: Limit) -> int:
    return limit.units if isinstance(limit.units, int) else 1


def written_rule(limit: Limit) -> LimitRule:
    """The rule that a definition gives a limit."""
    return LimitRule(limit.running or None, limit.rate or None, limit.period, limit.burst)


def find_place(rule: LimitRule, use: KeyUse, asked: Demand, now: int) -> Full | None:
    """Whether a key has no place for a claim now."""
    if rule.running is not None and use.held + _weight(rule, asked) > rule.running:
        return Full()
    if rule.rate is not None and asked.units:
        due_at = _arrival(rule, use, asked.units, now) - _interval(rule, max(rule.burst, asked.units))
        if due_at > now:
            return Full(due_at)
    return None


def take(rule: LimitRule, revision: int, use: KeyUse, asked: Demand, now: int) -> LimitGrant:
    """Give a claim a place under a key that has one; `use` has it from then on."""
    before, freed, weight = use.held, use.freed, _weight(rule, asked)
    use.seq, use.held, use.freed = use.seq + 1, use.held + weight, ()
    is_charged = rule.rate is not None and asked.units > 0
    if is_charged:
        use.tat = _arrival(rule, use, asked.units, now)
    return LimitGrant(
        name=asked.limit.name,
        key=asked.key,
        seq=use.seq,
        revision=revision,
        weight=weight,
        held=before,
        freed=freed,
        most=rule.running,
        rate=rule.rate if is_charged else None,
        period=rule.period if is_charged else None,
        burst=rule.burst if is_charged else None,
        units=asked.units if is_charged else None,
        tat=use.tat if is_charged else None,
    )


def room_of(rule: LimitRule, held: int, tat: int, most: int, now: int | None) -> int:
    """How many claims a key may have places for: `most` at most, and at least one, which tells why it has none.
    Without a time, its rate is not asked."""
    if rule.running is not None:
        most = min(most, rule.running - held)
    if rule.rate is not None and now is not None:
        most = min(most, (now - max(tat, now) + _interval(rule, rule.burst)) * rule.rate // rule.period)
    return max(1, most)


def _weight(rule: LimitRule, asked: Demand) -> int:
    """What a claim weighs. One that weighs more than the limit has it alone, because it would wait for ever."""
    return asked.limit.weight if rule.running is None else min(asked.limit.weight, rule.running)


def _interval(rule: LimitRule, units: int) -> int:
    """How long this many units take, rounded up, so that a rate is never exceeded."""
    assert rule.rate is not None
    return -(-rule.period * units // rule.rate)


def _arrival(rule: LimitRule, use: KeyUse, units: int, now: int) -> int:
    return max(use.tat, now) + _interval(rule, units)


def places_detail(grants: Iterable[LimitGrant]) -> list[dict[str, Any]]:
    """The places of a claim, as its journal entry has them."""
    fields = LimitGrant.__struct_fields__
    return [{name: value for name in fields if (value := getattr(one, name)) not in (None, ())} for one in grants]


def free_places(planned: PlannedStep, step: Step) -> tuple[LimitGrant, ...]:
    """A place under each limit of a step where nothing else counts, for walks through the kernel without other runs."""
    return tuple([take(written_rule(one.limit), 0, KeyUse(0, 0, 0), one, 0) for one in asked_of(planned, step)])
