"""Triggers as the engine offers them: `engine.triggers`. Each method checks its arguments and calls one operation.

It decides nothing.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from uuid_utils import uuid7

from stepkeep.definition import arguments
from stepkeep.engine.arguments import encode_payload, moment, optional_key
from stepkeep.engine.base import AsyncBase, AsyncGroup
from stepkeep.engine.blocking import Blocking, blocking
from stepkeep.kernel.errors import InvalidInput
from stepkeep.operations import validate
from stepkeep.operations.access import guarded
from stepkeep.operations.triggers import events, manage

LONGEST_BATCH = manage.MOST_AT_ONCE


@guarded("triggers.")
class AsyncTriggers(AsyncGroup):
    """What starts runs by itself: schedules, events, and the ends of other runs.

    >>> _ = engine.publish(hello)
    >>> engine.triggers.add("nightly", "hello", schedule="30 2 * * *", zone="Europe/Zurich")["state"]
    'active'
    """

    def __init__(self, engine: AsyncBase) -> None:
        super().__init__(engine)
        self._firer = engine._firer

    async def list(self) -> dict[str, Any]:
        """The triggers of the tenant, by name.

        >>> engine.triggers.list()["triggers"]
        []
        """
        return await manage.list_triggers(self._firer.transactor, tenant=self._tenant)

    async def show(self, name: str, *, firings: int = 20) -> dict[str, Any]:
        """A trigger with its next moments, its latest firings and its backfills.

        >>> _ = engine.publish(hello)
        >>> _ = engine.triggers.add("hourly", "hello", every="1h")
        >>> engine.triggers.show("hourly")["firings"]
        []
        """
        limit = arguments.whole("triggers.show: firings", firings, 1, manage.MOST_SHOWN)
        return await manage.show_trigger(self._firer.transactor, name, tenant=self._tenant, firings=limit)

    async def next(self, name: str, *, count: int = 10, after: datetime | None = None) -> dict[str, Any]:
        """The next moments of a schedule, also of one that is paused.

        >>> _ = engine.publish(hello)
        >>> _ = engine.triggers.add("nightly", "hello", schedule="30 2 * * *", zone="Europe/Zurich")
        >>> from datetime import UTC, datetime
        >>> [one] = engine.triggers.next("nightly", count=1, after=datetime(2027, 3, 27, 12, tzinfo=UTC))["next"]
        >>> one["local"]
        '2027-03-28T03:00:00+02:00'
        """
        limit = arguments.whole("triggers.next: count", count, 1, manage.MOST_SHOWN)
        since = moment("triggers.next: after", after)
        return await manage.next_moments(self._firer.transactor, name, tenant=self._tenant, count=limit, after=since)

    async def add(self, /, name: str, workflow: str, *, by: str | None = None, **trigger: Any) -> dict[str, Any]:
        """Add a trigger for the newest version of a workflow, or change one that was added so.

        The keywords are those of `triggers:` in a definition; `with_` stands for `with`.

        >>> _ = engine.publish(hello)
        >>> paid = engine.triggers.add("paid", "hello", event="order.paid", with_={"name": "${{ payload.name }}"})
        >>> paid["event"]
        'order.paid'
        """
        given = {"with" if key == "with_" else key: value for key, value in trigger.items()}
        from stepkeep.definition.triggers import read_trigger

        spec = read_trigger(given, manage.trigger_name(name))
        who = self._actor(by)
        return await manage.add_trigger(self._firer, spec, _workflow(workflow), tenant=self._tenant, actor=who)

    async def remove(self, name: str, *, by: str | None = None) -> dict[str, Any]:
        """Remove a trigger that was added by hand. Its firings stay on record.

        >>> _ = engine.publish(hello)
        >>> _ = engine.triggers.add("hourly", "hello", every="1h")
        >>> engine.triggers.remove("hourly")["state"]
        'removed'
        """
        self._acting(by)
        return await manage.remove_trigger(self._firer, name, tenant=self._tenant)

    async def pause(self, name: str, *, by: str | None = None) -> dict[str, Any]:
        """Let a trigger fire nothing by itself until it is resumed.

        >>> _ = engine.publish(hello)
        >>> _ = engine.triggers.add("hourly", "hello", every="1h")
        >>> engine.triggers.pause("hourly", by="ann")["paused_by"]
        'ann'
        """
        return await manage.pause_trigger(self._firer, name, tenant=self._tenant, actor=self._actor(by))

    async def resume(self, name: str, *, by: str | None = None) -> dict[str, Any]:
        """Let a paused trigger fire again, from its next moment on. Moments of the pause are not caught up.

        >>> _ = engine.publish(hello)
        >>> _ = engine.triggers.add("hourly", "hello", every="1h")
        >>> _ = engine.triggers.pause("hourly")
        >>> engine.triggers.resume("hourly")["state"]
        'active'
        """
        self._acting(by)
        return await manage.resume_trigger(self._firer, name, tenant=self._tenant)

    async def fire(
        self, name: str, *, payload: Any = None, key: str | None = None, by: str | None = None
    ) -> dict[str, Any]:
        """Fire a trigger now, whatever its overlap policy says and also while it is paused. One key fires once.

        >>> _ = engine.publish(hello)
        >>> _ = engine.triggers.add("hourly", "hello", every="1h")
        >>> fired = engine.triggers.fire("hourly", key="by-hand-1", payload={"name": "Ann"})
        >>> fired["state"], fired["run_id"] == engine.triggers.fire("hourly", key="by-hand-1")["run_id"]
        ('started', True)
        """
        encode_payload(payload)
        return await manage.fire_trigger(
            self._firer,
            name,
            tenant=self._tenant,
            acting=self._acting(by),
            key=optional_key("triggers.fire: key", key),
            payload=payload,
        )

    async def backfill(
        self,
        name: str,
        *,
        since: datetime,
        until: datetime,
        at_once: int = 5,
        dry_run: bool = False,
        by: str | None = None,
    ) -> dict[str, Any]:
        """Fire the moments of a range that have no run: a job that workers carry out, `at_once` runs at a time.

        With `dry_run`, nothing is written.

        >>> _ = engine.publish(hello)
        >>> _ = engine.triggers.add("hourly", "hello", every="1h")
        >>> from datetime import UTC, datetime
        >>> day = {"since": datetime(2026, 3, 1, tzinfo=UTC), "until": datetime(2026, 3, 2, tzinfo=UTC)}
        >>> engine.triggers.backfill("hourly", **day, dry_run=True)["moments"]
        24
        """
        begin, end = moment("triggers.backfill: since", since), moment("triggers.backfill: until", until)
        if begin is None or end is None:
            raise InvalidInput("a backfill has a range: give since= and until=, each with a time zone.")
        return await manage.backfill(
            self._firer,
            name,
            tenant=self._tenant,
            actor=self._actor(by),
            since=begin,
            until=end,
            at_once=arguments.whole("triggers.backfill: at_once", at_once, 1, LONGEST_BATCH),
            dry_run=arguments.flag("triggers.backfill: dry_run", dry_run),
        )

    async def stop_backfill(self, name: str, backfill: str, *, by: str | None = None) -> dict[str, Any]:
        """End a backfill early. The runs that it has started go on.

        >>> _ = engine.publish(hello)
        >>> _ = engine.triggers.add("hourly", "hello", every="1h")
        >>> from datetime import UTC, datetime
        >>> day = {"since": datetime(2026, 3, 1, tzinfo=UTC), "until": datetime(2026, 3, 2, tzinfo=UTC)}
        >>> job = engine.triggers.backfill("hourly", **day)
        >>> engine.triggers.stop_backfill("hourly", job["backfill"])["state"]
        'stopped'
        """
        self._acting(by)
        job = validate.key("the id of the backfill", backfill)
        return await manage.stop_backfill(self._firer, manage.trigger_name(name), job, tenant=self._tenant)

    async def emit(
        self,
        event: str,
        payload: Any = None,
        *,
        id: str | None = None,  # noqa: A002 - the word of CloudEvents
        correlation_id: str | None = None,
        by: str | None = None,
    ) -> dict[str, Any]:
        """Hand in an event from outside: every trigger that it concerns fires, once for each id.

        >>> _ = engine.publish(hello)
        >>> _ = engine.triggers.add("risky", "hello", event="risk.*", condition="riskScore >= 0.7")
        >>> told = engine.triggers.emit("risk.rated", {"riskScore": 0.9, "name": "Ann"}, id="e-1")
        >>> [one["state"] for one in told["firings"]]
        ['started']
        """
        encode_payload(payload)
        return await events.emit(
            self._firer,
            event,
            payload,
            tenant=self._tenant,
            actor=self._actor(by),
            event_id=str(uuid7()) if id is None else id,
            correlation_id=optional_key("triggers.emit: correlation_id", correlation_id),
        )


class Triggers(Blocking[AsyncTriggers]):
    list = blocking(AsyncTriggers.list)
    show = blocking(AsyncTriggers.show)
    next = blocking(AsyncTriggers.next)
    add = blocking(AsyncTriggers.add)
    remove = blocking(AsyncTriggers.remove)
    pause = blocking(AsyncTriggers.pause)
    resume = blocking(AsyncTriggers.resume)
    fire = blocking(AsyncTriggers.fire)
    backfill = blocking(AsyncTriggers.backfill)
    stop_backfill = blocking(AsyncTriggers.stop_backfill)
    emit = blocking(AsyncTriggers.emit)


def _workflow(name: object) -> str:
    return validate.key("the name of the workflow", name)
