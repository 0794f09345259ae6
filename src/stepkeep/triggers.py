"""Triggers as the engine offers them: `engine.triggers`. Each method checks its arguments and calls one operation.

`sync_triggers` has the same methods for programs without an event loop. It decides nothing.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from uuid_utils import uuid7

from stepkeep.definition import arguments
from stepkeep.engine_arguments import encode_payload, moment, optional_key
from stepkeep.errors import InvalidInput
from stepkeep.operations import validate
from stepkeep.operations.access import Access, Acting, guarded
from stepkeep.operations.triggers import events, manage
from stepkeep.operations.triggers.firing import Firer

LONGEST_BATCH = manage.MOST_AT_ONCE


@guarded("triggers.")
class AsyncTriggers:
    """What starts runs by itself: schedules, events, and the ends of other runs."""

    def __init__(self, firer: Firer, access: Access) -> None:
        self._firer, self.access = firer, access

    @property
    def _tenant(self) -> str:
        return self.access.tenant

    def _acting(self, by: str | None) -> Acting:
        return self.access.acting(optional_key("by", by))

    async def list(self) -> dict[str, Any]:
        """The triggers of the tenant, by name."""
        return await manage.list_triggers(self._firer.transactor, tenant=self._tenant)

    async def show(self, name: str, *, firings: int = 20) -> dict[str, Any]:
        """A trigger with its next moments, its latest firings and its backfills."""
        limit = arguments.whole("triggers.show: firings", firings, 1, manage.MOST_SHOWN)
        return await manage.show_trigger(self._firer.transactor, name, tenant=self._tenant, firings=limit)

    async def next(self, name: str, *, count: int = 10, after: datetime | None = None) -> dict[str, Any]:
        """The next moments of a schedule, also of one that is paused."""
        limit = arguments.whole("triggers.next: count", count, 1, manage.MOST_SHOWN)
        since = moment("triggers.next: after", after)
        return await manage.next_moments(self._firer.transactor, name, tenant=self._tenant, count=limit, after=since)

    async def add(self, name: str, workflow: str, *, by: str | None = None, **trigger: Any) -> dict[str, Any]:
        """Add a trigger for the newest version of a workflow, or change one that was added so."""
        given = {"with" if key == "with_" else key: value for key, value in trigger.items()}
        from stepkeep.definition.triggers import read_trigger

        spec = read_trigger(given, manage.trigger_name(name))
        who = self._acting(by)["actor"]
        return await manage.add_trigger(self._firer, spec, _workflow(workflow), tenant=self._tenant, actor=who)

    async def remove(self, name: str, *, by: str | None = None) -> dict[str, Any]:
        """Remove a trigger that was added by hand. Its firings stay on record."""
        self._acting(by)
        return await manage.remove_trigger(self._firer, name, tenant=self._tenant)

    async def pause(self, name: str, *, by: str | None = None) -> dict[str, Any]:
        """Let a trigger fire nothing by itself until it is resumed."""
        return await manage.pause_trigger(self._firer, name, tenant=self._tenant, actor=self._acting(by)["actor"])

    async def resume(self, name: str, *, by: str | None = None) -> dict[str, Any]:
        """Let a paused trigger fire again, from its next moment on. Moments of the pause are not caught up."""
        self._acting(by)
        return await manage.resume_trigger(self._firer, name, tenant=self._tenant)

    async def fire(
        self, name: str, *, payload: Any = None, key: str | None = None, by: str | None = None
    ) -> dict[str, Any]:
        """Fire a trigger now, whatever its overlap policy says and also while it is paused. One key fires once."""
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
        """Fire the moments of a range that have no run: a job that workers carry out, `at_once` runs at a time."""
        begin, end = moment("triggers.backfill: since", since), moment("triggers.backfill: until", until)
        if begin is None or end is None:
            raise InvalidInput("a backfill has a range: give since= and until=, each with a time zone.")
        return await manage.backfill(
            self._firer,
            name,
            tenant=self._tenant,
            actor=self._acting(by)["actor"],
            since=begin,
            until=end,
            at_once=arguments.whole("triggers.backfill: at_once", at_once, 1, LONGEST_BATCH),
            dry_run=arguments.flag("triggers.backfill: dry_run", dry_run),
        )

    async def stop_backfill(self, name: str, backfill: str, *, by: str | None = None) -> dict[str, Any]:
        """End a backfill early. The runs that it has started go on."""
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
        """Hand in an event from outside: every trigger that it concerns fires, once for each id."""
        encode_payload(payload)
        return await events.emit(
            self._firer,
            event,
            payload,
            tenant=self._tenant,
            actor=self._acting(by)["actor"],
            event_id=str(uuid7()) if id is None else id,
            correlation_id=optional_key("triggers.emit: correlation_id", correlation_id),
        )


def _workflow(name: object) -> str:
    return validate.key("the name of the workflow", name)
