"""API keys: `engine.keys`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from stepkeep.engine.arguments import duration, moment, optional_key
from stepkeep.engine.base import AsyncGroup
from stepkeep.engine.blocking import Blocking, blocking
from stepkeep.operations.access import ADMINISTER, OWN, READ, Scope
from stepkeep.operations.answers import says
from stepkeep.operations.operation import Actor, Name, Time, group, operation
from stepkeep.operations.people import keys
from stepkeep.operations.people.keys import KeyList, MadeKey, RevokedKey
from stepkeep.operations.people.quotas import Quota, Quotas
from stepkeep.operations.typed import InPython

KeyId = Annotated[str, Meta(max_length=255, description="The public id of a key.", examples=["0123456789abcdef"])]
Scopes = Annotated[Iterable[str], InPython(Annotated[list[Scope], Meta(min_length=1, max_length=20)])]
Short = Annotated[str, Meta(max_length=255)]
Queues = Annotated[
    Iterable[str] | None,
    InPython(Annotated[list[Short], Meta(min_length=1, max_length=100)] | None),
    says('The queues that it may work on; the default one is "".'),
]
Handlers = Annotated[
    Iterable[str] | None,
    InPython(Annotated[list[Short], Meta(min_length=1, max_length=1000)] | None),
    says("The handlers that it may work on."),
]
Lifetime = Annotated[str, Meta(max_length=100, examples=["90d"])]


@group("keys", "API keys")
class AsyncKeys(AsyncGroup):
    """API keys of the tenant. Each has an owner, who is the actor of everything done with it.

    >>> _ = engine.users.create("ann")
    >>> made = engine.keys.create("ann", scopes=["read", "decide"], expires_in="90d")
    >>> made.secret.startswith("sk_" + made.key.id)
    True
    """

    @operation(
        ADMINISTER,
        "POST /api-keys",
        "create_key",
        "Make a key",
        status=201,
        done="Made",
        example={"owner": "ann", "scopes": ["read", "start"]},
        repeatable=False,
    )
    async def create(
        self,
        owner: Name,
        *,
        scopes: Scopes,
        expires_at: Time | None = None,
        expires_in: Lifetime | None = None,
        max_concurrent_runs: Annotated[Quota | None, says("Unfinished runs.")] = None,
        max_requests_per_min: Annotated[Quota | None, says("Of each process.")] = None,
        queues: Queues = None,
        handlers: Handlers = None,
        by: Actor = None,
    ) -> MadeKey:
        """Make a key for a principal. `secret` of the answer is the whole key: it is shown once and kept nowhere.

        Open the database with it: `sk.open(url, key=...)`. Scopes: read, start, decide, complete, operate, work, admin,
        vouch. The quotas limit its unfinished runs and its requests a minute. A key with `queues` or `handlers`
        works on steps of these alone; the default queue is "".

        >>> _ = engine.users.create("ann")
        >>> engine.keys.create("ann", scopes=["read"]).key.scopes
        ['read']
        """
        return await keys.create_key(
            self._store,
            owner,
            scopes=scopes,
            expires_at=moment("expires_at", expires_at),
            expires_in=None if expires_in is None else duration("expires_in", expires_in),
            quotas=Quotas(max_concurrent_runs=max_concurrent_runs, max_requests_per_min=max_requests_per_min),
            limits=keys.read_limits(queues, handlers),
            access=self.access,
            caller=self._caller(by),
        )

    @operation(
        OWN,
        "POST /api-keys/{key_id}/rotate",
        "rotate_key",
        "Replace a key",
        status=201,
        done="Made",
        repeatable=False,
        ends_access=True,
    )
    async def rotate(
        self, key_id: KeyId, *, overlap: Annotated[str, Meta(max_length=100)] = "1d", by: Actor = None
    ) -> MadeKey:
        """Make a new key with the same owner and scopes; the old one ends after `overlap`.

        The new key ends when the old one would have. One that an administrator makes has the same lifetime anew. A key
        with other scopes than those of the caller, and the key of a session, is refused.

        >>> _ = engine.users.create("ann")
        >>> old = engine.keys.create("ann", scopes=["read"]).key
        >>> engine.keys.rotate(old.id, overlap="1h").key.replaces == old.id
        True
        """
        return await keys.rotate_key(
            self._store, self.access, key_id, overlap=duration("overlap", overlap), caller=self._caller(by)
        )

    @operation(OWN, "DELETE /api-keys/{key_id}", "revoke_key", "End a key", ends_access=True)
    async def revoke(self, key_id: KeyId, *, by: Actor = None) -> RevokedKey:
        """End a key now, with the keys that replaced it (`successors`) and their sessions; decisions refuse them from
        this moment on. Other processes of a service learn of it within a second. Every owner may.

        >>> _ = engine.users.create("ann")
        >>> old = engine.keys.create("ann", scopes=["read"]).key
        >>> engine.keys.revoke(old.id).key.state
        'revoked'
        """
        return await keys.revoke_key(self._store, self.access, key_id, caller=self._caller(by))

    @operation(READ, "GET /api-keys", "list_keys", "List keys", pages="keys", page_key="id")
    async def list(self, *, owner: Annotated[Name | None, says("Only the keys of this person.")] = None) -> KeyList:
        """Keys without their secrets, newest first; with `owner`, those of one principal.

        >>> engine.keys.list().keys
        []
        """
        return await keys.list_keys(self._store, self._tenant, optional_key("the owner", owner))


class Keys(Blocking[AsyncKeys]):
    create, rotate, revoke = blocking(AsyncKeys.create), blocking(AsyncKeys.rotate), blocking(AsyncKeys.revoke)
    list = blocking(AsyncKeys.list)
