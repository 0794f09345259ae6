"""What starts runs by itself: `engine.triggers`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta
from uuid_utils import uuid7

from stepkeep.engine.arguments import encode_payload
from stepkeep.engine.base import AsyncBase, AsyncGroup
from stepkeep.engine.blocking import Blocking, blocking
from stepkeep.operations import validate
from stepkeep.operations.access import OPERATE, READ, START
from stepkeep.operations.answers import says
from stepkeep.operations.operation import Actor, Name, Time, group, operation
from stepkeep.operations.triggers import events, manage
from stepkeep.operations.triggers.views import (
    BackfillView,
    Emitted,
    FiringView,
    NextMoments,
    TriggerDetails,
    TriggerList,
    TriggerView,
)

TriggerName = Annotated[
    str, Meta(min_length=1, max_length=255, description="The name of a trigger.", examples=["shop/nightly"])
]
Shown = Annotated[int, Meta(ge=1, le=manage.MOST_SHOWN, description="How many at most.")]
NAMED = "/triggers/{name:path}"


@group("triggers", "Triggers")
class AsyncTriggers(AsyncGroup):
    """What starts runs by itself: schedules, events, and the ends of other runs.

    >>> _ = engine.publish(hello)
    >>> engine.triggers.add("nightly", "hello", schedule="30 2 * * *", zone="Europe/Zurich").state
    'active'
    """

    def __init__(self, engine: AsyncBase) -> None:
        super().__init__(engine)
        self._firer = engine._firer

    @operation(
        READ, "GET /triggers", "list_triggers", "List triggers", pages="triggers", page_key="trigger", agents="reads"
    )
    async def list(self) -> TriggerList:
        """The triggers of the tenant, by name.

        >>> engine.triggers.list().triggers
        []
        """
        return await manage.list_triggers(self._firer.transactor, tenant=self._tenant)

    @operation(READ, f"GET {NAMED}", "get_trigger", "Show a trigger", agents="reads")
    async def show(self, name: TriggerName, *, firings: Shown = 20) -> TriggerDetails:
        """A trigger with its next moments, its latest firings and its backfills.

        >>> _ = engine.publish(hello)
        >>> _ = engine.triggers.add("hourly", "hello", every="1h")
        >>> engine.triggers.show("hourly").firings
        []
        """
        return await manage.show_trigger(self._transactor, name, tenant=self._tenant, firings=firings)

    @operation(
        READ,
        f"GET {NAMED}/next",
        "list_next_moments",
        "The next moments of a schedule",
        names={"count": "limit"},
        agents="reads",
    )
    async def next(
        self,
        name: TriggerName,
        *,
        count: Shown = 10,
        after: Annotated[Time | None, says("A time with a zone; now by default.")] = None,
    ) -> NextMoments:
        """The next moments of a schedule, also of one that is paused.

        >>> _ = engine.publish(hello)
        >>> _ = engine.triggers.add("nightly", "hello", schedule="30 2 * * *", zone="Europe/Zurich")
        >>> from datetime import UTC, datetime
        >>> [one] = engine.triggers.next("nightly", count=1, after=datetime(2027, 3, 27, 12, tzinfo=UTC)).next
        >>> one.local
        '2027-03-28T03:00:00+02:00'
        """
        since = None if after is None else _micros(after)
        return await manage.next_moments(self._transactor, name, tenant=self._tenant, count=count, after=since)

    @operation(
        OPERATE,
        "POST /triggers",
        "add_trigger",
        "Add a trigger, or change one that was added",
        rest="trigger",
        asks=True,
        example={"name": "nightly", "workflow": "hello", "trigger": {"schedule": "0 3 * * *"}},
    )
    async def add(self, /, name: Name, workflow: Name, *, by: Actor = None, **trigger: Any) -> TriggerView:
        """Add a trigger for the newest version of a workflow, or change one that was added so. One that a version of a
        workflow declares is refused.

        The keywords are those of `triggers:` in a definition; `with_` stands for `with`.

        >>> _ = engine.publish(hello)
        >>> paid = engine.triggers.add("paid", "hello", event="order.paid", with_={"name": "${{ payload.name }}"})
        >>> paid.event
        'order.paid'
        """
        given = {"with" if key == "with_" else key: value for key, value in trigger.items()}
        from stepkeep.definition.native.triggers import read_trigger

        spec = read_trigger(given, manage.trigger_name(name))
        wanted, caller = validate.key("the name of the workflow", workflow), self._caller(by)
        return await manage.add_trigger(self._firer, spec, wanted, caller=caller)

    @operation(OPERATE, f"DELETE {NAMED}", "remove_trigger", "Remove a trigger that was added by hand")
    async def remove(self, name: TriggerName, *, by: Actor = None) -> TriggerView:
        """Remove a trigger that was added by hand. Its firings stay on record.

        >>> _ = engine.publish(hello)
        >>> _ = engine.triggers.add("hourly", "hello", every="1h")
        >>> engine.triggers.remove("hourly").state
        'removed'
        """
        self._caller(by)
        return await manage.remove_trigger(self._firer, name, tenant=self._tenant)

    @operation(OPERATE, f"POST {NAMED}/pause", "pause_trigger", "Pause a trigger")
    async def pause(self, name: TriggerName, *, by: Actor = None) -> TriggerView:
        """Let a trigger fire nothing by itself until it is resumed.

        >>> _ = engine.publish(hello)
        >>> _ = engine.triggers.add("hourly", "hello", every="1h")
        >>> engine.triggers.pause("hourly", by="ann").paused_by
        'ann'
        """
        return await manage.pause_trigger(self._firer, name, caller=self._caller(by))

    @operation(OPERATE, f"POST {NAMED}/resume", "resume_trigger", "Resume a trigger")
    async def resume(self, name: TriggerName, *, by: Actor = None) -> TriggerView:
        """Let a paused trigger fire again, from its next moment on. Moments of the pause are not caught up.

        >>> _ = engine.publish(hello)
        >>> _ = engine.triggers.add("hourly", "hello", every="1h")
        >>> _ = engine.triggers.pause("hourly")
        >>> engine.triggers.resume("hourly").state
        'active'
        """
        self._caller(by)
        return await manage.resume_trigger(self._firer, name, tenant=self._tenant)

    @operation(
        START,
        f"POST {NAMED}/fire",
        "fire_trigger",
        "Fire a trigger now",
        or_key="key",
        repeatable=False,
        example={"key": "again-1"},
    )
    async def fire(
        self,
        name: TriggerName,
        *,
        payload: Annotated[Any, says("The payload of the event, for the trigger's expressions.")] = None,
        key: Annotated[Annotated[str, Meta(min_length=1, max_length=100)] | None, says("One key fires once.")] = None,
        by: Actor = None,
    ) -> FiringView:
        """Fire a trigger now, whatever its overlap policy says and also while it is paused. One key fires once.

        >>> _ = engine.publish(hello)
        >>> _ = engine.triggers.add("hourly", "hello", every="1h")
        >>> fired = engine.triggers.fire("hourly", key="by-hand-1", payload={"name": "Ann"})
        >>> fired.state, fired.run_id == engine.triggers.fire("hourly", key="by-hand-1").run_id
        ('started', True)
        """
        encode_payload(payload)
        return await manage.fire_trigger(self._firer, name, caller=self._caller(by), key=key, payload=payload)

    @operation(
        OPERATE,
        f"POST {NAMED}/backfills",
        "start_backfill",
        "Fire the moments of a range that have no run",
        repeatable=False,
        example={"since": "2026-01-01T00:00:00Z", "until": "2026-01-03T00:00:00Z", "dry_run": True},
    )
    async def backfill(
        self,
        name: TriggerName,
        *,
        since: Time,
        until: Time,
        at_once: Annotated[
            int, Meta(ge=1, le=manage.MOST_AT_ONCE, description="How many of its runs are live at a time.")
        ] = 5,
        dry_run: Annotated[bool, says("Write nothing, and say how many moments there are.")] = False,
        by: Actor = None,
    ) -> BackfillView:
        """Fire the moments of a range that have no run: a job that workers carry out, `at_once` runs at a time.

        With `dry_run`, nothing is written.

        >>> _ = engine.publish(hello)
        >>> _ = engine.triggers.add("hourly", "hello", every="1h")
        >>> from datetime import UTC, datetime
        >>> day = {"since": datetime(2026, 3, 1, tzinfo=UTC), "until": datetime(2026, 3, 2, tzinfo=UTC)}
        >>> engine.triggers.backfill("hourly", **day, dry_run=True).moments
        24
        """
        return await manage.backfill(
            self._firer,
            name,
            caller=self._caller(by),
            since=_micros(since),
            until=_micros(until),
            at_once=at_once,
            dry_run=dry_run,
        )

    @operation(OPERATE, f"POST {NAMED}/backfills/{{backfill}}/stop", "stop_backfill", "End a backfill early")
    async def stop_backfill(
        self, name: TriggerName, backfill: Annotated[Name, says("The id of a backfill.")], *, by: Actor = None
    ) -> BackfillView:
        """End a backfill early. The runs that it has started go on.

        >>> _ = engine.publish(hello)
        >>> _ = engine.triggers.add("hourly", "hello", every="1h")
        >>> from datetime import UTC, datetime
        >>> day = {"since": datetime(2026, 3, 1, tzinfo=UTC), "until": datetime(2026, 3, 2, tzinfo=UTC)}
        >>> job = engine.triggers.backfill("hourly", **day)
        >>> engine.triggers.stop_backfill("hourly", job.backfill).state
        'stopped'
        """
        self._caller(by)
        job = validate.key("the id of the backfill", backfill)
        return await manage.stop_backfill(self._firer, manage.trigger_name(name), job, tenant=self._tenant)

    @operation(
        START,
        "POST /events",
        "emit_event",
        "Hand in an event from outside",
        or_key="id",
        repeatable=False,
        example={"event": "order.paid", "payload": {"order": 7}, "id": "e-7"},
    )
    async def emit(
        self,
        event: Annotated[Name, says("The type of the event.")],
        payload: Any = None,
        *,
        id: Annotated[Name | None, says("The same id again fires nothing again.")] = None,  # noqa: A002
        correlation_id: Name | None = None,
        by: Actor = None,
    ) -> Emitted:
        """Hand in an event from outside: every trigger that it concerns fires, once for each id.

        >>> _ = engine.publish(hello)
        >>> _ = engine.triggers.add("risky", "hello", event="risk.*", condition="riskScore >= 0.7")
        >>> told = engine.triggers.emit("risk.rated", {"riskScore": 0.9, "name": "Ann"}, id="e-1")
        >>> [one.state for one in told.firings]
        ['started']
        """
        encode_payload(payload)
        return await events.emit(
            self._firer,
            event,
            payload,
            caller=self._caller(by),
            event_id=str(uuid7()) if id is None else id,
            correlation_id=correlation_id,
        )


class Triggers(Blocking[AsyncTriggers]):
    list, show, next = blocking(AsyncTriggers.list), blocking(AsyncTriggers.show), blocking(AsyncTriggers.next)
    add, remove, pause = blocking(AsyncTriggers.add), blocking(AsyncTriggers.remove), blocking(AsyncTriggers.pause)
    resume, fire = blocking(AsyncTriggers.resume), blocking(AsyncTriggers.fire)
    backfill, stop_backfill = blocking(AsyncTriggers.backfill), blocking(AsyncTriggers.stop_backfill)
    emit = blocking(AsyncTriggers.emit)


def _micros(time: datetime) -> int:
    return int(time.timestamp() * 1_000_000)
