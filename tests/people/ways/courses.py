"""Ways in which a run goes on before pal tries to pass its gate. `cases.py` has them as one table of a case."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import stepkeep as sk
from stepkeep.kernel.errors import Refused
from tests.people.ways.places import WRAPPERS
from tests.people.ways.play import FIRST, OTHER, Course, Play, migrate
from tests.people.world import Acting


async def _stays(play: Play, run_id: str) -> str:
    return run_id


async def _escalated(play: Play, run_id: str) -> str:
    """The gate is opened to the role chief, which pal has."""
    actor, named = await play.as_(play.sue)
    for at in await play.world.open_steps(run_id):
        await actor.interventions.escalate(*at, reason="slow", **named)
    return run_id


async def _changed(play: Play, run_id: str) -> str:
    actor, named = await play.as_(play.sue)
    for at in await play.world.open_steps(run_id):
        await actor.interventions.request_changes(*at, comment="say why", **named)
    return run_id


async def _operated(play: Play, run_id: str) -> str:
    """Pal tries the operations on single steps that are stuck."""
    actor, named = await play.as_(play.pal)
    for run, step in await play.world.open_steps(run_id):
        for choice in ("retry", "skip", "fail", "complete"):
            output = {"output": {}} if choice == "complete" else {}
            try:
                await actor.decide(run, step, choice, reason="stuck", **output, **named)
            except Refused:
                continue
            raise AssertionError(f"{choice} was accepted at {step}")
    return run_id


async def _rejected(play: Play, run_id: str) -> None:
    """Sue rejects, and the run fails."""
    actor, named = await play.as_(play.sue)
    for run, step in await play.world.open_steps(run_id):
        if play.case.kind == "exhausted":
            await actor.decide(run, step, "fail", reason="no", **named)
        elif play.case.kind == "manual":
            await actor.complete(run, step, token=play.world.tokens[play.id][-1], outcome="Failed", **named)
        else:
            await actor.reject(run, step, **named)
    await play.world.settle(run_id)


def _again(how: str, by: str, *, rejects: bool = True) -> Callable[[Play, str], Awaitable[str]]:
    """The run was rejected, and `ron` or `pal` goes on with it: pal has the duty as before."""

    async def go(play: Play, run_id: str) -> str:
        if rejects:
            await _rejected(play, run_id)
        else:
            await play.world.root.cancel(run_id)
        at = "sub" if WRAPPERS[play.case.wrapper] else "sign"
        run_id = await _go_on(play, run_id, how, await play.as_(getattr(play, by)), at)
        await play.world.settle(run_id)
        return run_id

    return go


async def _go_on(play: Play, run_id: str, how: str, acting: Acting, at: str, **options: Any) -> str:
    actor, named = acting
    if how == "retry":
        started = await actor.continuations.retry(run_id, **options, **named)
    elif how == "rerun":
        started = await actor.continuations.rerun(run_id, at, **options, **named)
    else:
        started = await actor.continuations.fork(run_id, at, **options, **named)
    return str(started.run_id)


async def _migrated(play: Play, run_id: str) -> str:
    """Ron migrates the run while its gate is open."""
    run_id = await migrate(play, run_id, await play.as_(play.ron), 2)
    await play.world.settle(run_id)
    return run_id


def _adopting(how: str, decider: str, goes_on: str, **options: Any) -> Callable[[Play, str], Awaitable[str]]:
    """A person without a duty decides, the payment fails or waits, and another goes on with the run."""

    async def go(play: Play, run_id: str) -> str:
        play.world.failing |= set() if play.course.paid_before or play.course.waits else {play.id}
        await play.pass_all(getattr(play, decider), run_id)
        play.world.failing.discard(play.id)
        disguised = goes_on == "pal" and play.trick.goes_on
        acting = (await play.disguises())[-1] if disguised else await play.as_(getattr(play, goes_on))
        if "version" in options:
            await play.world.publish(play.definitions(2, pays=OTHER))
        given = dict(options) | ({"input": {**play.given, "amount": OTHER}} if "input" in options else {})
        for one in (acting, await play.as_(play.pal)):
            try:
                if how == "migrate":
                    changed = {"pays": OTHER} if play.course.pays == OTHER else {}
                    run_id = await migrate(play, run_id, one, 2, **changed)
                else:
                    run_id = await _go_on(play, run_id, how, one, "pay", **given)
                break
            except sk.InvalidInput:  # a name that no person can have
                continue
        await play.world.settle(run_id)
        return run_id

    return go


COURSES: Mapping[str, Course] = {
    "direct": Course(_stays),
    "blind": Course(_stays, shows=False),
    "escalated": Course(_escalated),
    "changed": Course(_changed),
    "operated": Course(_operated),
    "retried": Course(_again("retry", "ron")),
    "rerun": Course(_again("rerun", "ron")),
    "forked": Course(_again("fork", "ron")),
    "cancelled": Course(_again("retry", "ron", rejects=False)),
    "migrated": Course(_migrated, versions=True),
    # Pal decides, and asks for the run that would carry the decision.
    "own_retry": Course(_adopting("retry", "pal", "pal"), adopts=True),
    "own_rerun": Course(_adopting("rerun", "pal", "pal"), adopts=True),
    "own_fork": Course(_adopting("fork", "pal", "pal"), adopts=True, paid_before=[FIRST]),
    "own_migrate": Course(_adopting("migrate", "pal", "pal"), adopts=True, waits=True, versions=True),
    # Sue decides about one amount, and pal asks for another.
    "other_fork": Course(_adopting("fork", "sue", "pal", input=OTHER), adopts=True, paid_before=[FIRST], pays=OTHER),
    "other_rerun": Course(_adopting("rerun", "sue", "pal", input=OTHER), adopts=True, paid_before=[FIRST], pays=OTHER),
    "other_blind": Course(
        _adopting("fork", "sue", "pal", input=OTHER), adopts=True, paid_before=[FIRST], pays=OTHER, shows=False
    ),
    # Sue decides about one plan, and pal asks for another.
    "plan_retry": Course(_adopting("retry", "sue", "pal", version=2), adopts=True, pays=OTHER, versions=True),
    "plan_fork": Course(
        _adopting("fork", "sue", "pal", version=2), adopts=True, paid_before=[FIRST], pays=OTHER, versions=True
    ),
    "plan_migrate": Course(_adopting("migrate", "sue", "pal"), adopts=True, pays=OTHER, waits=True, versions=True),
    # Sue decides, and a person without a duty goes on with the same: the decision counts.
    "kept_retry": Course(_adopting("retry", "sue", "ron"), adopts=True, innocent=True),
    "kept_rerun": Course(_adopting("rerun", "sue", "ron"), adopts=True, innocent=True),
    "kept_fork": Course(_adopting("fork", "sue", "ron"), adopts=True, innocent=True, paid_before=[FIRST]),
    "kept_migrate": Course(_adopting("migrate", "sue", "ron"), adopts=True, innocent=True, waits=True, versions=True),
}
