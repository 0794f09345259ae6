"""A role under row-level security: whether this one is, how a transaction names its tenant, and the few reads across
tenants that such a role may ask for.

It changes no right: `stepkeep db grants ROLE --as api` does. The store asks it once when it opens, and before each
transaction of a confined role.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec

from stepkeep.kernel.errors import PermissionDenied
from stepkeep.store.part import Read
from stepkeep.store.people import PeopleStore, key_from, session_from
from stepkeep.store.postgres.connections import Connection, fetch
from stepkeep.store.postgres.load import SQL
from stepkeep.store.principals import ApiKey, SessionRow
from stepkeep.store.reading import first, only

MOST_VIEWS = 10_000
NO_TENANT = "-"
"""The tenant in which an unknown key is looked for, so that known and unknown ones cost the same statements."""


class Shared(msgspec.Struct):
    """What a store and its views for single tenants share. The views are by tenant, those used last at the end."""

    clock_offset: int = 0
    is_open: bool = False
    is_confined: bool = False
    views: OrderedDict[str, Any] = msgspec.field(default_factory=OrderedDict)

    def view(self, tenant: str, make: Callable[[], Any]) -> Any:
        """The view of this tenant, made if need be. One that was not used for long is made again."""
        found = self.views.get(tenant)
        if found is None:
            found = self.views[tenant] = make()
            while len(self.views) > MOST_VIEWS:
                self.views.popitem(last=False)
        else:
            self.views.move_to_end(tenant)
        return found


def set_tenant(tenant: str) -> str:
    """The statement that names the tenant of a transaction, until its end. In hexadecimal, which needs no quotes."""
    return f"select set_config('stepkeep.tenant', convert_from(decode('{tenant.encode().hex()}', 'hex'), 'UTF8'), true)"


async def is_confined(connection: Connection) -> bool:
    """Whether this role sees one tenant at a time. Refuses a role that should and does not, wholly or for a table."""
    [(confined, escapes, reachable)] = await fetch(connection, SQL.read_confinement)
    role = getattr(connection.get_settings(), "session_authorization", "of this database URL")
    if escapes:
        raise PermissionDenied(
            f"the role {role} is to see one tenant at a time, and bypasses row-level security: it is a superuser, has "
            "BYPASSRLS, or has the rights of the owner of the tables. Take that from it, or use another role"
        )
    if reachable:
        raise PermissionDenied(
            f"the role {role} is to see one tenant at a time, and may use {', '.join(reachable)} without a policy. "
            f"Revoke that, or run as the owner what `stepkeep db grants {role} --as api` prints"
        )
    return bool(confined)


class PeopleOfRole(PeopleStore):
    """The tables of people for any role. A confined one is told the tenant of a key first, and reads it as that one."""

    def __init__(self, shared: Shared, read_as: Callable[[str], Read], *part: Any, **more: Any) -> None:
        super().__init__(*part, **more)
        self._shared, self._read_as = shared, read_as

    async def find_key(self, key_id: str) -> ApiKey | None:
        if not self._shared.is_confined:
            return await super().find_key(key_id)
        read = await self._reader(SQL.find_tenant_of_key, key_id)
        return first(await read(key_from, SQL.find_key, key_id))

    async def find_session(self, session_id: str) -> SessionRow | None:
        if not self._shared.is_confined:
            return await super().find_session(session_id)
        read = await self._reader(SQL.find_tenant_of_session, session_id)
        return first(await read(session_from, SQL.find_session, session_id))

    async def list_tenant_names(self, limit: int = 1000) -> list[str]:
        if not self._shared.is_confined:
            return await super().list_tenant_names(limit)
        return await self._read(only, SQL.list_tenant_names, limit)

    async def _reader(self, statement: str, name: str) -> Read:
        [tenant] = await self._read(only, statement, name)
        return self._read_as(tenant or NO_TENANT)
