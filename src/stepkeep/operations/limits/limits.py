"""What people ask of limits: the rules and their use, who holds what under a key, and changes of a rule.

A change is a new revision of a setting, with its actor and its reason, and has every line of the limit looked at again.
It grants nothing: `resource_claims` does. The engine, publication and `diagnosis` call it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from stepkeep.definition.bounds import LIMIT_PERIOD, MAX_UNITS
from stepkeep.definition.durations import InvalidDuration, format_duration, parse_duration
from stepkeep.edges.safe_text import inert_line
from stepkeep.kernel.decide.limits import LimitRule, asked_of, written_rule
from stepkeep.kernel.definition import Definition, Limit
from stepkeep.kernel.errors import InvalidInput, NotFound
from stepkeep.kernel.machine.rows import Step
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.plan import Plan
from stepkeep.operations import validate
from stepkeep.operations.answers import Answer, says
from stepkeep.operations.instants import instant
from stepkeep.operations.limits.rules import FRESH_SECONDS, NO_RULE, Rule, WrittenRule, read_rules
from stepkeep.operations.settings import Revision, SettingKind, change_setting, revisions
from stepkeep.store.protocol import Store
from stepkeep.store.rows import LimitHold

MOST_KEYS = 1_000
"""For how many keys of a limit an operator says something at most."""

KEPT_US = 86_400 * 1_000_000
FORGET_AT_ONCE = 10_000
MOST_NAMED = 3
MOST_HOLDERS = 20

WAKE_AFTER_US = round(FRESH_SECONDS * 1_000_000) + 100_000
"""When the lines of a changed limit are looked at: no process goes by the rule before by then."""


class LimitNumbers(Answer, kw_only=True):
    """How much may run and begin under a key."""

    running: Annotated[int | None, says("How much may run at once; null: no limit.")]
    rate: Annotated[str | None, says("How many units may begin in how many seconds, as `100/1m`; null: no limit.")]
    burst: Annotated[int, says("How many units may begin at once.")]


class LimitOfKey(LimitNumbers, kw_only=True):
    """What an operator says for one key."""

    key: str


class LimitSummary(LimitNumbers, kw_only=True):
    """One limit, and its use."""

    name: str
    said_by: Annotated[str, says("Who says so for all keys: `operator`, a workflow, or nobody (empty).")]
    of_keys: Annotated[list[LimitOfKey], says("What an operator says for single keys.")]
    held: Annotated[int, says("What claims weigh together, under all keys.")]
    keys_held: Annotated[int, says("Under how many keys something is held.")]
    waiting: Annotated[int, says("How many steps are parked.")]


class LimitList(Answer, kw_only=True):
    """The limits of a tenant."""

    limits: list[LimitSummary]


class LimitHolder(Answer, kw_only=True):
    """A step that has a place while a worker runs it."""

    run_id: str
    step: str
    weight: int
    since: str | None


class LimitKeyUse(Answer, kw_only=True):
    """One key, and its use."""

    key: str
    held: int
    waiting: int
    holders: Annotated[list[LimitHolder], says("The first ones.")]


class LimitDetail(LimitSummary, kw_only=True):
    """One limit with the keys in use, and every change of its rule."""

    in_use: list[LimitKeyUse]
    next_key: Annotated[str | None, says("The last key of this page, where there may be more.")]
    history: list[Revision]


async def list_limits(store: Store, tenant: str) -> LimitList:
    """Every limit that has a rule or is in use."""
    rules, use = await read_rules(store, tenant), {one.name: one for one in await store.limits.count_use(tenant)}
    return LimitList(limits=[_summary(LimitSummary, name, rules, use) for name in sorted({*rules, *use})])


async def show_limit(store: Store, tenant: str, name: str, key: str | None, after: str, most: int) -> LimitDetail:
    """One limit with its keys in use, or one of them."""
    rules, use = await read_rules(store, tenant), {one.name: one for one in await store.limits.count_use(tenant)}
    if name not in rules and name not in use:
        raise NotFound(f"there is no limit {inert_line(name, 100)!r}. `stepkeep limits list` lists them.")
    keys = await store.limits.read_keys(tenant, name, after, most)
    shown = [
        LimitKeyUse(
            key=one.key,
            held=one.held,
            waiting=one.waiting,
            holders=[_holder(hold) for hold in await store.limits.read_holds(tenant, name, one.key, MOST_HOLDERS)],
        )
        for one in keys
        if key is None or one.key == key
    ]
    found: LimitDetail = _summary(
        LimitDetail,
        name,
        rules,
        use,
        in_use=shown,
        next_key=keys[-1].key if len(keys) == most else None,
        history=await revisions(store, tenant, SettingKind.LIMIT, name),
    )
    return found


def _holder(hold: LimitHold) -> LimitHolder:
    return LimitHolder(run_id=hold.run_id, step=hold.step, weight=hold.weight, since=instant(hold.held_at))


def _summary(kind: Any, name: str, rules: Any, use: Any, **more: Any) -> Any:
    rule, used = rules.get(name, NO_RULE), use.get(name)
    written = rule.written
    return kind(
        **_numbers(rule.of("\x00")),
        name=name,
        said_by="operator" if written.all else written.workflow,
        of_keys=[LimitOfKey(**_numbers(one), key=key) for key, one in sorted(written.keys.items())],
        held=used.held if used else 0,
        keys_held=used.keys if used else 0,
        waiting=used.waiting if used else 0,
        **more,
    )


def _numbers(rule: LimitRule) -> dict[str, Any]:
    rate = None if rule.rate is None else f"{rule.rate}/{format_duration(rule.period)}"
    return {"running": rule.running, "rate": rate, "burst": rule.burst}


def rule_of(running: int | None, rate: str | None, burst: int) -> LimitRule:
    """A rule in numbers; refuses a rate that is none."""
    if rate is None:
        return LimitRule(running=running, burst=burst)
    units, _, period = rate.partition("/")
    try:
        length = parse_duration(period)
    except InvalidDuration as problem:
        raise InvalidInput(f"the rate {inert_line(rate, 40)!r} is none: {problem} Write it as 100/1m.") from None
    shortest, longest = LIMIT_PERIOD
    if not shortest <= length <= longest:
        raise InvalidInput("the time of a rate is 1ms to 366d.")
    if not 1 <= int(units) <= MAX_UNITS:
        raise InvalidInput(f"a rate has 1 to {MAX_UNITS:,} units.")
    return LimitRule(running=running, rate=int(units), period=length, burst=burst)


async def set_limit(store: Store, name: str, rule: LimitRule, key: str | None, reason: str, *, caller: Caller) -> None:
    """Say what counts for all keys, or for one: it counts before what a definition says, and outlives publication."""
    reason = validate.words("the reason", reason)

    def changed(written: WrittenRule) -> WrittenRule:
        if key is None:
            return replace(written, all=rule, reason=reason)
        keys = {**written.keys, key: rule}
        if len(keys) > MOST_KEYS:
            raise InvalidInput(f"a limit says something for at most {MOST_KEYS:,} keys. Clear one first.")
        return replace(written, keys=keys, reason=reason)

    await _change(store, name, changed, caller)


async def clear_limit(store: Store, name: str, key: str | None, reason: str, *, caller: Caller) -> None:
    """Take back what an operator has set, for all keys or for one: what is left counts."""
    reason = validate.words("the reason", reason)

    def changed(written: WrittenRule) -> WrittenRule:
        if key is None:
            return replace(written, all=None, reason=reason)
        others = {known: rule for known, rule in written.keys.items() if known != key}
        return replace(written, keys=others, reason=reason)

    await _change(store, name, changed, caller)


async def _change(store: Store, name: str, change: Any, caller: Caller) -> None:
    def changed(before: Any) -> Any:
        written = WrittenRule() if before is None else msgspec.convert(before, WrittenRule)
        after = change(written)
        if len(msgspec.json.encode(after)) > 256 * 1024:
            raise InvalidInput("the rule of a limit has at most 256 KiB. Clear what it says for some keys first.")
        is_empty = after.published is None and after.all is None and not after.keys
        return None if is_empty else msgspec.to_builtins(after)

    await change_setting(store, SettingKind.LIMIT, name, changed, caller=caller)
    await store.limits.wake(caller.tenant, name, WAKE_AFTER_US)


def _published(definition: Definition) -> dict[str, LimitRule]:
    """The numbers that a definition gives its limits. Steps of one definition that share a limit say the same."""
    found: dict[str, LimitRule] = {}
    for limit in [limit for step in definition.work for limit in step.limits or ()]:
        rule = written_rule(limit)
        if rule.running is None and rule.rate is None:
            continue
        if found.setdefault(limit.name, rule) != rule:
            raise InvalidInput(f"two steps of {definition.name} give the limit {limit.name} different numbers.")
    return found


async def check_limits(store: Store, tenant: str, definition: Definition) -> None:
    """Refuse a definition that gives a shared limit other numbers than another workflow does."""
    if found := _published(definition):
        rules = await read_rules(store, tenant)
        for name, rule in found.items():
            written = rules.get(name, NO_RULE).written
            if written.published not in (None, rule) and written.workflow != definition.name:
                raise InvalidInput(
                    f"the limit {name} is shared with workflow {written.workflow}, which gives it other numbers. Give "
                    "it the same, name it without numbers, or choose another name."
                )


async def publish_limits(store: Store, definition: Definition, *, caller: Caller) -> None:
    """Keep what the newest version of a workflow says about limits."""
    for name, rule in _published(definition).items():
        newest = await store.read_definition(caller.tenant, definition.name, None)
        if newest is None or newest.version != definition.version:
            return

        def changed(written: WrittenRule, rule: LimitRule = rule) -> WrittenRule:
            if written.published == rule:
                return written
            return replace(written, published=rule, workflow=definition.name, reason="published")

        await _change(store, name, changed, caller)


async def forget_keys(store: Store) -> int:
    """Delete keys that were not used for a day. Returns how many; what is left over goes next time."""
    return await store.limits.forget_keys(KEPT_US, FORGET_AT_ONCE)


async def lacking_places(
    store: Store, tenant: str, run_id: str, plan: Plan, steps: Sequence[Step]
) -> dict[int, tuple[str, str]]:
    """Of each parked step: the name of the limit, and its key with who holds it and since when, in words."""
    by_number = {step.no: step for step in steps}
    found: dict[int, tuple[str, str]] = {}
    rules = await read_rules(store, tenant)
    for wait in await store.limits.read_waits(tenant, run_id):
        step = by_number.get(wait.no)
        if step is None or step.ready_at is None:
            continue
        limit = next((one.limit for one in asked_of(plan.of(step), step) if one.limit.name == wait.name), None)
        rule = rules.get(wait.name, NO_RULE)
        holds = await store.limits.read_holds(tenant, wait.name, wait.key, MOST_NAMED)
        found[wait.no] = wait.name, _words(wait.name, wait.key, rule, limit, holds)
    return found


def _words(name: str, key: str, rule: Rule, limit: Limit | None, holds: Sequence[LimitHold]) -> str:
    numbers = rule.of(key, limit)
    whose = f"limit {name}" + (f" for {key}" if key else "")
    said = []
    if numbers.running is not None:
        holders = [f"step {one.step} of run {one.run_id} since {instant(one.held_at)}" for one in holds]
        said.append(f"at most {numbers.running} at once" + (f"; held by {', '.join(holders)}" if holders else ""))
    if numbers.rate is not None:
        said.append(f"{_numbers(numbers)['rate']}, {numbers.burst} at once")
    return f"a place under {whose}: {' and '.join(said) or 'it is free, and a worker takes it'}"
