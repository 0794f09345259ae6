"""The audit log: `engine.audit`."""

from __future__ import annotations

from typing import Annotated, Literal

from stepkeep.engine.arguments import moment, optional_key
from stepkeep.engine.base import AsyncGroup
from stepkeep.engine.blocking import Blocking, blocking
from stepkeep.operations import audit
from stepkeep.operations.access import ADMINISTER
from stepkeep.operations.answers import says
from stepkeep.operations.audit import AuditPage
from stepkeep.operations.operation import Cursor, Limit, Name, Time, group
from stepkeep.operations.operation import operation as row
from stepkeep.store.rows import AuditFilter


@group("audit", "Audit log")
class AsyncAudit(AsyncGroup):
    """The audit log: what was asked for with keys and through the service, every refusal, every change of people.

    >>> engine.audit.list().audit
    []
    """

    @row(ADMINISTER, "GET /audit", "list_audit", "Search the audit log", pages="audit")
    async def list(
        self,
        *,
        actor: Annotated[Name | None, says("Only what this person or program asked for.")] = None,
        target: Annotated[Name | None, says("Only about this run, user or other thing.")] = None,
        operation: Annotated[Name | None, says("Only this operation: `approve`.")] = None,
        outcome: Annotated[
            Literal["done", "refused", "failed"] | None, says("Done, not allowed, or not possible.")
        ] = None,
        key: Annotated[Name | None, says("Only with the key that has this id.")] = None,
        since: Annotated[Time | None, says("At or after this time.")] = None,
        until: Annotated[Time | None, says("Before this time.")] = None,
        cursor: Cursor = None,
        limit: Limit = 100,
    ) -> AuditPage:
        """Entries that match everything given, newest first; `next` of the answer is the cursor of the next page.

        `outcome` is `"done"`, `"refused"` (not allowed) or `"failed"` (not possible); `target` is a run, a user or
        another thing that the operation names.

        >>> _ = engine.users.create("ann")
        >>> [(one.operation, one.target) for one in engine.audit.list(target="ann").audit]
        [('user_created', 'ann')]
        """
        wanted = AuditFilter(
            tenant=self._tenant,
            actor=optional_key("actor", actor),
            target=optional_key("target", target),
            operation=optional_key("operation", operation),
            key=optional_key("key", key),
            outcome=outcome,
            since=moment("since", since) or 0,
            limit=limit,
        )
        return await audit.read_audit(self._store, wanted, cursor, until=moment("until", until))


class Audit(Blocking[AsyncAudit]):
    list = blocking(AsyncAudit.list)
