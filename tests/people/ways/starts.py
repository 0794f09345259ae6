"""Ways to start a run so that a person is a cause of it. `cases.py` has them as one table of a case."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import stepkeep as sk
from tests.people.ways.places import PASSED
from tests.people.ways.play import Play, Start, migrate


async def _start(play: Play, maker: str) -> str:
    actor, named = await play.as_(maker)
    return str((await actor.start(await play.published(), play.given, **named)).run_id)


async def _idle_of(play: Play, maker: str) -> str:
    return await _idle(play, maker, play.ron)


async def _idle_by(play: Play, maker: str) -> str:
    return await _idle(play, play.ron, maker)


async def _idle(play: Play, creator: str, starter: str) -> str:
    actor, named = await play.as_(creator)
    run_id = (await actor.start(await play.published(), play.given, start_now=False, **named)).run_id
    actor, named = await play.as_(starter)
    await actor.start_idle(run_id, **named)
    return str(run_id)


async def _message(play: Play, maker: str) -> str:
    actor, named = await play.as_(maker)
    workflow = await play.published()
    told = await actor.send(None, "hello", {}, key=play.id, start=workflow, input=play.given, **named)
    return str(told["run_id"])


async def _event(play: Play, maker: str) -> str:
    actor, named = await play.as_(maker)
    workflow = await play.published(triggers=[{"name": "event", "event": f"asked.{play.id}"}])
    [fired] = (await actor.triggers.emit(f"asked.{play.id}", play.given, **named))["firings"]
    assert fired["trigger"].startswith(workflow)
    return str(fired["run_id"])


async def _fire(play: Play, maker: str) -> str:
    actor, named = await play.as_(maker)
    workflow = await play.published(triggers=[{"name": "event", "event": f"asked.{play.id}"}])
    return str((await actor.triggers.fire(f"{workflow}/event", payload=play.given, **named))["run_id"])


async def _every(play: Play, maker: str) -> str:
    actor, named = await play.as_(maker)
    workflow, name = await play.published(), f"every-{play.id}"
    await actor.triggers.add(name, workflow, every="1s", with_=play.given, **named)
    run_id = await play.world.until(lambda: _fired(play, name))
    await play.world.root.triggers.remove(name)
    return str(run_id)


async def _declared(play: Play, maker: str) -> str:
    """The person publishes a definition with a schedule, and so adds a trigger."""
    publisher = await play.world.holding(await play.world.key(maker))
    *children, last = play.definitions(triggers=[{"name": "soon", "every": "1s", "with": play.given}])
    if children:
        await play.world.publish(children)
    play.workflow = last.name
    await publisher.publish(last)
    name = f"{last.name}/soon"
    run_id = await play.world.until(lambda: _fired(play, name))
    await play.world.root.triggers.pause(name)
    return str(run_id)


async def _backfill(play: Play, maker: str) -> str:
    actor, named = await play.as_(maker)
    workflow, name = await play.published(), f"daily-{play.id}"
    await play.world.root.triggers.add(name, workflow, every="1d", with_=play.given, by=play.ron)
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
    await actor.triggers.backfill(
        name, since=midnight - timedelta(hours=1), until=midnight + timedelta(hours=1), **named
    )
    return str(await play.world.until(lambda: _fired(play, name)))


async def _fired(play: Play, trigger: str) -> str | None:
    found = (await play.world.root.triggers.show(trigger))["firings"]
    return next((one["run_id"] for one in found if one["run_id"]), None)


async def _ended(play: Play, maker: str) -> str:
    """The end of a run that the person started starts the run."""
    before = sk.Workflow(f"before-{play.id}", registry=play.world.root.registry)
    before.step("work", "ways.work")
    await play.world.publish([before])
    workflow = await play.published(triggers=[{"name": "ended", "ended": before.name, "with": play.given}])
    actor, named = await play.as_(maker)
    first = (await actor.start(before.name, {"case": play.id}, **named)).run_id
    await play.world.settle(first)
    return str(await play.world.until(lambda: _fired(play, f"{workflow}/ended")))


async def _emitted(play: Play, maker: str) -> str:
    """An event that a run of the person emits starts the run."""
    emitter = sk.Workflow("emitter", registry=play.world.root.registry)
    emitter.step("emit", "ways.emitting")
    await play.world.publish([emitter])
    workflow = await play.published(triggers=[{"name": "event", "event": f"asked.{play.id}"}])
    actor, named = await play.as_(maker)
    said = {"event": f"asked.{play.id}", "payload": play.given}
    first = (await actor.start("emitter", said, **named)).run_id
    await play.world.settle(first)
    return str(await play.world.until(lambda: _fired(play, f"{workflow}/event")))


async def _detached(play: Play, maker: str) -> str:
    """The run is a child that nothing waits for, of a run of the person."""
    workflow = await play.published()
    launcher = sk.Workflow(f"launch-{workflow}", registry=play.world.root.registry)
    launcher.workflow("launch", workflow, detached=True, inputs=PASSED)
    await play.world.publish([launcher])
    actor, named = await play.as_(maker)
    first = (await actor.start(launcher.name, play.given, **named)).run_id
    child = str((await play.world.root.show(first))["run"]["children"][0]["run_id"])

    async def found() -> str | None:
        with suppress(sk.NotFound):
            await play.world.root.show(child)
            return child
        return None

    return str(await play.world.until(found))


async def _earlier(play: Play, maker: str) -> str:
    """A run of this person that was cancelled."""
    run_id = await _start(play, maker)
    actor, named = await play.as_(maker)
    await actor.cancel(run_id, **named)
    return run_id


async def _rerun_of(play: Play, maker: str) -> str:
    first = await _earlier(play, maker)
    actor, named = await play.as_(play.ron)
    return str((await actor.rerun(first, **named)).run_id)


async def _rerun_by(play: Play, maker: str) -> str:
    first = await _earlier(play, play.ron)
    actor, named = await play.as_(maker)
    return str((await actor.rerun(first, **named)).run_id)


async def _retry_by(play: Play, maker: str) -> str:
    first = await _earlier(play, play.ron)
    actor, named = await play.as_(maker)
    return str((await actor.continuations.retry(first, **named)).run_id)


async def _fork_by(play: Play, maker: str) -> str:
    first = await _earlier(play, play.ron)
    actor, named = await play.as_(maker)
    return str((await actor.continuations.fork(first, "pay", **named)).run_id)


async def _bulk(play: Play, maker: str) -> str:
    first = await _earlier(play, play.ron)
    actor, named = await play.as_(maker)
    await actor.jobs.start("rerun", runs=[first], **named)

    async def found() -> str | None:
        return next(iter((await play.world.root.show(first))["run"]["continued_by"]), None)

    return str(await play.world.until(found))


async def _migrated_by(play: Play, maker: str) -> str:
    """The person migrates a run of another one before its gate opens."""
    actor, named = await play.as_(play.ron)
    first = (await actor.start(await play.published(), play.given, **named)).run_id
    return await migrate(play, first, await play.as_(maker), 2)


STARTS: Mapping[str, Start] = {
    "start": _start,
    "idle_of": _idle_of,
    "idle_by": _idle_by,
    "message": _message,
    "event": _event,
    "fire": _fire,
    "every": _every,
    "declared": _declared,
    "backfill": _backfill,
    "ended": _ended,
    "emitted": _emitted,
    "detached": _detached,
    "rerun_of": _rerun_of,
    "rerun_by": _rerun_by,
    "retry_by": _retry_by,
    "fork_by": _fork_by,
    "bulk": _bulk,
    "migrated_by": _migrated_by,
}

OWN_DEFINITION = ("event", "fire", "declared", "ended", "emitted", "migrated_by")
