"""The allow list of a tenant: which internal hosts its requests may reach, beside what a worker allows.

Only a caller without a key changes it: a key belongs to a member of the tenant, and the network to the operator. The
engine calls it, and workers read it before each HTTP step.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, UnsetType

from stepkeep.kernel.errors import InvalidInput, NotAllowed, NotFound
from stepkeep.kernel.people.authority import Caller
from stepkeep.network.allowing import AllowList, parse_entry
from stepkeep.operations.answers import Answer, says
from stepkeep.operations.settings import Revision, SettingKind, change_setting, read_setting, revisions
from stepkeep.store.protocol import Store

NAME = "allow"
MOST_ENTRIES = 1000


class Allowed(Answer, kw_only=True):
    """What HTTP steps may reach beside public addresses."""

    allow: Annotated[list[str], says("Hosts, addresses and networks.")]
    history: Annotated[list[Revision] | UnsetType, says("Every change, newest first.")] = UNSET


async def allow_host(store: Store, host: str, *, caller: Caller) -> Allowed:
    """Add an entry to the allow list of the tenant; one that is there changes nothing."""
    entry = str(parse_entry(host))

    def add(before: Any) -> list[str]:
        known = _entries(before)
        if len(known) >= MOST_ENTRIES and entry not in known:
            raise InvalidInput(
                f"an allow list has at most {MOST_ENTRIES} entries. List a network in place of addresses."
            )
        return sorted({*known, entry})

    return await _changed(store, add, caller)


async def disallow_host(store: Store, host: str, *, caller: Caller) -> Allowed:
    """Remove an entry from the allow list of the tenant; raises NotFound."""
    entry = str(parse_entry(host))

    def remove(before: Any) -> list[str]:
        known = _entries(before)
        if entry not in known:
            raise NotFound(f"{entry} is not in the allow list. `stepkeep network list` lists what is.")
        return [one for one in known if one != entry]

    return await _changed(store, remove, caller)


async def list_allowed(store: Store, tenant: str, *, history: bool = False) -> Allowed:
    """The entries, and with `history` every revision, newest first."""
    entries = _entries(await read_setting(store, tenant, SettingKind.NETWORK, NAME))
    found = await revisions(store, tenant, SettingKind.NETWORK, NAME) if history else UNSET
    return Allowed(allow=entries, history=found)


async def allow_list(store: Store, tenant: str) -> AllowList:
    """The allow list of the tenant, for the guard."""
    return AllowList.of(_entries(await read_setting(store, tenant, SettingKind.NETWORK, NAME)))


async def _changed(store: Store, change: Any, caller: Caller) -> Allowed:
    if caller.key is not None:
        raise NotAllowed(
            "what may be reached on the internal network is changed by the operator, who opens the database without a "
            "key, and not with the key of a tenant. A worker can be given its own list: stepkeep worker --http-allow.",
            "operator_only",
            caller.actor,
        )
    return Allowed(allow=await change_setting(store, SettingKind.NETWORK, NAME, change, caller=caller))


def _entries(content: Any) -> list[str]:
    return [] if content is None else content
