"""The rules of limits: what publication and operators say about each name, and what counts for a key.

A rule is a setting of the tenant, with its revisions. What an operator sets for a key counts first, then what an
operator sets for all keys, then what a definition says. Every claim of a limited step goes by rules that its process
has read at most `FRESH_SECONDS` ago. Claims, publication and `limits` call it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from stepkeep.kernel.decide.limits import LimitRule, written_rule
from stepkeep.kernel.definition import Limit
from stepkeep.operations.settings import SettingKind, list_kind
from stepkeep.store.protocol import Store

FRESH_SECONDS = 0.4
"""How long a process goes by the rules that it has read."""


class WrittenRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a tenant says about a limit. `workflow` is the one whose definition says `published`."""

    published: LimitRule | None = None
    workflow: str = ""
    all: LimitRule | None = None
    keys: dict[str, LimitRule] = {}
    reason: str = ""


class Rule(msgspec.Struct, frozen=True):
    """A rule and its revision."""

    written: WrittenRule
    revision: int

    def of(self, key: str, limit: Limit | None = None) -> LimitRule:
        """What counts for a key."""
        written = self.written
        own = LimitRule() if limit is None else written_rule(limit)
        return written.keys.get(key) or written.all or written.published or own


Rules = Mapping[str, Rule]
"""The rules of a tenant by the names of limits."""

NO_RULE = Rule(WrittenRule(), 0)


async def read_rules(store: Store, tenant: str) -> Rules:
    """Every rule of a tenant."""
    found = await list_kind(store, tenant, SettingKind.LIMIT)
    return {one.name: Rule(msgspec.json.decode(one.document, type=WrittenRule), one.revision) for one in found}


class RuleReader:
    """Reads the rules of tenants for the claims of one process. It has the lines of a limit looked at when it finds
    another revision: until then this process may have parked steps by the rule before."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, int]] = {}

    async def read(self, store: Store, tenant: str) -> Rules:
        """Every rule of a tenant."""
        found = await read_rules(store, tenant)
        now = {name: rule.revision for name, rule in found.items()}
        seen = self._seen.get(tenant, now)
        self._seen[tenant] = now
        for name in sorted({*seen, *now}):
            if seen.get(name) != now.get(name):
                await store.limits.wake(tenant, name, 0)
        return found
