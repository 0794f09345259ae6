"""Limits in the simulator: which steps have them, and who changes their rules while runs are live.

All definitions draw from the same few limits, so that many runs share keys. What must be true in the end is
`wrong_places` of `shared_resources`. `run_seed` draws with it and starts the operator.
"""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random

from msgspec.structs import replace

from stepkeep.kernel.decide.limits import LimitRule
from stepkeep.kernel.definition import SECOND, Definition, Flow, Limit, StepDefinition, Switch
from stepkeep.kernel.errors import Refused, StoreError
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.limits.limits import clear_limit, set_limit
from stepkeep_lab.simulation.definitions import maybe
from stepkeep_lab.simulation.faults import Fault
from stepkeep_lab.simulation.processes import Server
from stepkeep_lab.simulation.stage import TENANT, Stage

KEYS = ('${{ "a" }}', '${{ "b" }}', "${{ input.n }}")
LIMITS = (
    Limit(name="api", per=KEYS[0], running=2),
    Limit(name="all", running=3),
    Limit(name="mail", per=KEYS[0], rate=1, period=2 * SECOND, burst=2),
)
"""The limits that definitions share: each has one rule."""

RULES = (LimitRule(running=1), LimitRule(running=4), LimitRule(running=2, rate=1, burst=3), LimitRule())
"""What an operator says about a limit, for all keys or for one."""

ROOT = Caller(TENANT, "root")


def with_limits(drawn: Definition, random: Random, share: float) -> Definition:
    """The definition with limits on some of the steps that workers run."""
    if drawn.dialect != "native":
        return drawn
    return replace(drawn, steps=tuple([_maybe_limited(step, random, share) for step in drawn.steps]))


def _maybe_limited(step: StepDefinition, random: Random, share: float) -> StepDefinition:
    """A flow leaves its limits to its calls, and a choice to its cases."""
    if isinstance(step.growth, Switch):
        cases = [replace(case, step=_maybe_limited(case.step, random, share)) for case in step.growth.cases]
        return replace(step, growth=replace(step.growth, cases=tuple(cases)))
    if step.executor is None or isinstance(step.growth, Flow) or random.random() >= share:
        return step
    return _limited(step, random)


def _limited(step: StepDefinition, random: Random) -> StepDefinition:
    chosen = [one for one in LIMITS if maybe(random, 0.5)] or [random.choice(LIMITS)]
    return replace(step, limits=tuple([_drawn(one, random) for one in chosen]))


def _drawn(limit: Limit, random: Random) -> Limit:
    if limit.per:
        limit = replace(limit, per=random.choice(KEYS))
    units: int | str = random.choice((1, 1, 2, "${{ 1 + input.n }}"))
    return replace(limit, units=units) if limit.rate else replace(limit, weight=random.choice((1, 1, 2)))


async def change_rules(stage: Stage, server: Server) -> None:
    """An operator changes rules until the chaos is over."""
    random = stage.random("rules of limits")
    while stage.scenario.limits and stage.chaos:
        await asyncio.sleep(random.choice((0.1, 1.0, 3.0)) * random.random())
        if maybe(random, stage.scenario.rules):
            name, key = random.choice(LIMITS).name, random.choice((None, "a", "1"))
            rule = random.choice((*RULES, None))
            stage.log.note(Fault.STAFF, f"limit {name}")
            try:
                await server.call(partial(_change, name=name, rule=rule, key=key))
            except (Refused, StoreError) as problem:
                stage.ledger.met[f"a caller met {type(problem).__name__}"] += 1


async def _change(server: Server, name: str, rule: LimitRule | None, key: str | None) -> None:
    store = server.transactor.store
    if rule is None:
        await clear_limit(store, name, key, "chaos", caller=ROOT)
    else:
        await set_limit(store, name, rule, key, "chaos", caller=ROOT)
