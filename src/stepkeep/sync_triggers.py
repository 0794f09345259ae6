"""Triggers for programs without an event loop: the methods of `triggers`, called and awaited.

It has no logic of its own: each method calls the one of the same name. `sync_engine.Engine` makes the object.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from stepkeep.sync_administration import Call
from stepkeep.triggers import AsyncTriggers


class Triggers:
    """What starts runs by itself: schedules, events, and the ends of other runs.

    >>> _ = engine.publish(hello)
    >>> engine.triggers.add("nightly", "hello", schedule="30 2 * * *", zone="Europe/Zurich")["state"]
    'active'
    """

    def __init__(self, core: AsyncTriggers, call: Call) -> None:
        self._core, self._call = core, call

    def list(self) -> dict[str, Any]:
        """The triggers of the tenant, by name.

        >>> engine.triggers.list()["triggers"]
        []
        """
        return self._call(self._core.list())

    def show(self, name: str, *, firings: int = 20) -> dict[str, Any]:
        """A trigger with its next moments, its latest firings and its backfills.

        >>> _ = engine.publish(hello)
        >>> _ = engine.triggers.add("hourly", "hello", every="1h")
        >>> engine.triggers.show("hourly")["firings"]
        []
        """
        return self._call(self._core.show(name, firings=firings))

    def next(self, name: str, *, count: int = 10, after: datetime | None = None) -> dict[str, Any]:
        """The next moments of a schedule, also of one that is paused.

        >>> _ = engine.publish(hello)
        >>> _ = engine.triggers.add("nightly", "hello", schedule="30 2 * * *", zone="Europe/Zurich")
        >>> from datetime import UTC, datetime
        >>> [one] = engine.triggers.next("nightly", count=1, after=datetime(2027, 3, 27, 12, tzinfo=UTC))["next"]
        >>> one["local"]
        '2027-03-28T03:00:00+02:00'
        """
        return self._call(self._core.next(name, count=count, after=after))

    def add(self, name: str, workflow: str, *, by: str | None = None, **trigger: Any) -> dict[str, Any]:
        """Add a trigger for the newest version of a workflow, or change one that was added so.

        The keywords are those of `triggers:` in a definition; `with_` stands for `with`.

        >>> _ = engine.publish(hello)
        >>> paid = engine.triggers.add("paid", "hello", event="order.paid", with_={"name": "${{ payload.name }}"})
        >>> paid["event"]
        'order.paid'
        """
        return self._call(self._core.add(name, workflow, by=by, **trigger))

    def remove(self, name: str, *, by: str | None = None) -> dict[str, Any]:
        """Remove a trigger that was added by hand. Its firings stay on record.

        >>> _ = engine.publish(hello)
        >>> _ = engine.triggers.add("hourly", "hello", every="1h")
        >>> engine.triggers.remove("hourly")["state"]
        'removed'
        """
        return self._call(self._core.remove(name, by=by))

    def pause(self, name: str, *, by: str | None = None) -> dict[str, Any]:
        """Let a trigger fire nothing by itself until it is resumed.

        >>> _ = engine.publish(hello)
        >>> _ = engine.triggers.add("hourly", "hello", every="1h")
        >>> engine.triggers.pause("hourly", by="ann")["paused_by"]
        'ann'
        """
        return self._call(self._core.pause(name, by=by))

    def resume(self, name: str, *, by: str | None = None) -> dict[str, Any]:
        """Let a paused trigger fire again, from its next moment on. Moments of the pause are not caught up.

        >>> _ = engine.publish(hello)
        >>> _ = engine.triggers.add("hourly", "hello", every="1h")
        >>> _ = engine.triggers.pause("hourly")
        >>> engine.triggers.resume("hourly")["state"]
        'active'
        """
        return self._call(self._core.resume(name, by=by))

    def fire(self, name: str, *, payload: Any = None, key: str | None = None, by: str | None = None) -> dict[str, Any]:
        """Fire a trigger now, whatever its overlap policy says and also while it is paused. One key fires once.

        >>> _ = engine.publish(hello)
        >>> _ = engine.triggers.add("hourly", "hello", every="1h")
        >>> fired = engine.triggers.fire("hourly", key="by-hand-1", payload={"name": "Ann"})
        >>> fired["state"], fired["run_id"] == engine.triggers.fire("hourly", key="by-hand-1")["run_id"]
        ('started', True)
        """
        return self._call(self._core.fire(name, payload=payload, key=key, by=by))

    def backfill(
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
        work = self._core.backfill(name, since=since, until=until, at_once=at_once, dry_run=dry_run, by=by)
        return self._call(work)

    def stop_backfill(self, name: str, backfill: str, *, by: str | None = None) -> dict[str, Any]:
        """End a backfill early. The runs that it has started go on.

        >>> _ = engine.publish(hello)
        >>> _ = engine.triggers.add("hourly", "hello", every="1h")
        >>> from datetime import UTC, datetime
        >>> day = {"since": datetime(2026, 3, 1, tzinfo=UTC), "until": datetime(2026, 3, 2, tzinfo=UTC)}
        >>> job = engine.triggers.backfill("hourly", **day)
        >>> engine.triggers.stop_backfill("hourly", job["backfill"])["state"]
        'stopped'
        """
        return self._call(self._core.stop_backfill(name, backfill, by=by))

    def emit(
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
        return self._call(self._core.emit(event, payload, id=id, correlation_id=correlation_id, by=by))
