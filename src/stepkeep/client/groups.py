"""The groups of methods of a client: `client.users`, `client.jobs`, `client.triggers` and the others.

One row per method: the method of the engine that it is like, and its route.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, TypeVar
from uuid import uuid4

from stepkeep.client.binding import Route, over_http, perform, plain
from stepkeep.engine.administration import AsyncAudit, AsyncKeys, AsyncTenants, AsyncUsers
from stepkeep.engine.base import AsyncGroup, group_at
from stepkeep.engine.blocking import Group
from stepkeep.engine.continuations import AsyncContinuations
from stepkeep.engine.interventions import AsyncInterventions
from stepkeep.engine.jobs import AsyncJobs
from stepkeep.engine.messages import AsyncMailbox
from stepkeep.engine.migrations import AsyncMigrations
from stepkeep.engine.outside import AsyncHooks, AsyncNetwork
from stepkeep.engine.sending import AsyncOutbox, AsyncSinks
from stepkeep.engine.triggers import AsyncTriggers
from stepkeep.kernel.errors import InvalidInput
from stepkeep.network.service import Service, again
from stepkeep.operations.start import Started

T = TypeVar("T", bound="ClientGroup")
R = TypeVar("R", bound=AsyncGroup)
CREATED = 201


class ClientGroup:
    """Methods that share a service."""

    def __init__(self, service: Service) -> None:
        self.service = service


def client_group(kind: type[T], engines: Group[Any]) -> Group[T]:
    """The group of a client for a group of the engine."""
    return Group(lambda client: kind(client.service), engines.__doc__, kind.__name__)


def remote_group(kind: type[R], engines: Group[R]) -> Group[R]:
    """The group of the engine itself, at the service of a client."""
    return Group(lambda client: group_at(kind, client.remote), engines.__doc__, kind.__name__)


class ClientTenants(ClientGroup):
    """The tenant of the key."""

    create = over_http(AsyncTenants.create, Route(method="POST", path="/tenants", repeatable=False))
    set_vouching = over_http(AsyncTenants.set_vouching, Route(method="PATCH", path="/tenants/{name}"))
    list = over_http(AsyncTenants.list, Route(method="GET", path="/tenants"))
    quotas = over_http(AsyncTenants.quotas, Route(method="GET", path="/tenants/{name}/quotas"))

    signing = over_http(AsyncTenants.signing, Route(method="GET", path="/tenants/{name}/signing"))
    set_signing = over_http(AsyncTenants.set_signing, Route(method="PUT", path="/tenants/{name}/signing"))

    def __getattr__(self, name: str) -> NoReturn:
        refuse_without_database(f"tenants.{name}", name, ("set_quotas",))


class ClientUsers(ClientGroup):
    """Users and services."""

    create = over_http(AsyncUsers.create, Route(method="POST", path="/users", repeatable=False))
    disable = over_http(AsyncUsers.disable, Route(method="POST", path="/users/{name}/disable"))
    enable = over_http(AsyncUsers.enable, Route(method="POST", path="/users/{name}/enable"))
    grant = over_http(AsyncUsers.grant, Route(method="POST", path="/users/{name}/grant", repeatable=False))
    revoke = over_http(AsyncUsers.revoke, Route(method="POST", path="/users/{name}/revoke", repeatable=False))
    delegate = over_http(AsyncUsers.delegate, Route(method="POST", path="/delegations", repeatable=False))
    undelegate = over_http(AsyncUsers.undelegate, Route(method="POST", path="/delegations/end", repeatable=False))
    delegations = over_http(AsyncUsers.delegations, Route(method="GET", path="/delegations", pages="delegations"))
    show = over_http(AsyncUsers.show, Route(method="GET", path="/users/{name}"))
    history = over_http(AsyncUsers.history, Route(method="GET", path="/history", pages="history", cursor="after"))
    list = over_http(AsyncUsers.list, Route(method="GET", path="/users", names={"after": "cursor"}, pages="users"))


class ClientKeys(ClientGroup):
    """API keys."""

    create = over_http(AsyncKeys.create, Route(method="POST", path="/api-keys", repeatable=False))
    rotate = over_http(AsyncKeys.rotate, Route(method="POST", path="/api-keys/{key_id}/rotate", repeatable=False))
    revoke = over_http(AsyncKeys.revoke, Route(method="DELETE", path="/api-keys/{key_id}", refused=("by",)))
    list = over_http(AsyncKeys.list, Route(method="GET", path="/api-keys", pages="keys"))


class ClientAudit(ClientGroup):
    """The audit log."""

    list = over_http(AsyncAudit.list, Route(method="GET", path="/audit", pages="audit", resumes=True))


class ClientJobs(ClientGroup):
    """Jobs that cancel many runs or run them again, carried out by workers; and backfills of triggers."""

    list = over_http(
        AsyncJobs.list, Route(method="GET", path="/jobs", names={"before": "cursor"}, pages="jobs", resumes=True)
    )
    show = over_http(AsyncJobs.show, Route(method="GET", path="/jobs/{job_id}"))
    runs = over_http(
        AsyncJobs.runs,
        Route(method="GET", path="/jobs/{job_id}/runs", names={"after": "cursor"}, pages="runs", resumes=True),
    )
    stop = over_http(AsyncJobs.stop, Route(method="POST", path="/jobs/{job_id}/stop", repeatable=False))

    async def start(
        self,
        action: str,
        *,
        where: Mapping[str, Any] | None = None,
        runs: Iterable[str] | None = None,
        compensate: bool = False,
        reason: str = "",
        dry_run: bool = False,
        idempotency_key: str | None = None,
        by: str | None = None,
    ) -> dict[str, Any]:
        """Cancel the runs that `where` finds, or run them again. With a key of its own, a request that is repeated
        makes one job."""
        body = {
            "action": action,
            "where": where,
            "runs": runs,
            "compensate": compensate,
            "reason": reason,
            "dry_run": dry_run,
            "by": by,
        }
        sent = {name: plain(value) for name, value in body.items() if value is not None}
        headers = {"Idempotency-Key": idempotency_key or str(uuid4())}
        answer = await again(lambda: self.service.request("POST", "/runs/bulk", body=sent, headers=headers))
        told: dict[str, Any] = answer.json()
        if not dry_run:
            told["created"] = answer.status == CREATED or idempotency_key is None
        return told


class ClientNetwork(ClientGroup):
    """What HTTP steps may reach on the internal network. Only the operator changes it, at the database."""

    list = over_http(AsyncNetwork.list, Route(method="GET", path="/network"))

    def __getattr__(self, name: str) -> NoReturn:
        refuse_without_database(f"network.{name}", name, ("allow", "remove"))


class ClientInterventions(ClientGroup):
    """What people do to a run besides deciding."""

    request_changes = over_http(
        AsyncInterventions.request_changes,
        Route(method="POST", path="/runs/{run_id}/request-changes", names={"for_": "for"}),
    )
    reassign = over_http(AsyncInterventions.reassign, Route(method="POST", path="/runs/{run_id}/reassign"))
    escalate = over_http(
        AsyncInterventions.escalate, Route(method="POST", path="/runs/{run_id}/escalate", names={"for_": "for"})
    )
    annotate = over_http(AsyncInterventions.annotate, Route(method="POST", path="/runs/{run_id}/notes"))
    freeze = over_http(AsyncInterventions.freeze, Route(method="POST", path="/runs/{run_id}/freeze"))


class ClientHooks(ClientGroup):
    """Inbound webhooks."""

    add = over_http(AsyncHooks.add, Route(method="POST", path="/hooks", names={"document": "hook"}))
    remove = over_http(AsyncHooks.remove, Route(method="DELETE", path="/hooks/{name}", refused=("by",)))
    list = over_http(AsyncHooks.list, Route(method="GET", path="/hooks", pages="hooks"))

    def __getattr__(self, name: str) -> NoReturn:
        refuse_without_database(f"hooks.{name}", name, ("receive",))


class ClientMigrations(ClientGroup):
    """Live runs that go on under another version."""

    migrate = over_http(AsyncMigrations.migrate, Route(method="POST", path="/runs/{run_id}/migrate"))
    preview = over_http(AsyncMigrations.preview, Route(method="POST", path="/runs/{run_id}/migration-preview"))
    migrate_all = over_http(AsyncMigrations.migrate_all, Route(method="POST", path="/migrations/{workflow}"))
    preview_all = over_http(AsyncMigrations.preview_all, Route(method="POST", path="/migrations/{workflow}/preview"))


class ClientContinuations(ClientGroup):
    """New runs that go on with finished ones."""

    preview = over_http(AsyncContinuations.preview, Route(method="POST", path="/runs/{run_id}/continuation-preview"))

    async def retry(
        self, run_id: str, *, version: int | None = None, idempotency_key: str | None = None, by: str | None = None
    ) -> Started:
        """A new run that continues after a fix: finished steps are adopted, the others run again."""
        return await self._started("retry", run_id, {"version": version, "by": by}, idempotency_key)

    async def rerun(
        self,
        run_id: str,
        start: str,
        *,
        input: Any = None,  # noqa: A002 - the word users know
        version: int | None = None,
        idempotency_key: str | None = None,
        by: str | None = None,
    ) -> Started:
        """A new run in which the step `start` and all that depends on it run again."""
        given = {"start": start, "input": input, "version": version, "by": by}
        return await self._started("rerun-from", run_id, given, idempotency_key)

    async def fork(
        self,
        run_id: str,
        at: str,
        *,
        input: Any = None,  # noqa: A002 - the word users know
        version: int | None = None,
        idempotency_key: str | None = None,
        by: str | None = None,
    ) -> Started:
        """A new run that takes another course from the step `at`, with another input if one is given."""
        given = {"at": at, "input": input, "version": version, "by": by}
        return await self._started("fork", run_id, given, idempotency_key)

    async def _started(self, word: str, run_id: str, given: dict[str, Any], idempotency_key: str | None) -> Started:
        """A key makes the request repeatable: the same one never makes a second run."""
        route = Route(method="POST", path=f"/runs/{{run_id}}/{word}", headers={"key": "Idempotency-Key"})
        key = idempotency_key or str(uuid4())
        told = await perform(self.service, route, {"run_id": run_id, "key": key, **given})
        return Started(told["run_id"], told["created"] or idempotency_key is None)


class ClientMailbox(ClientGroup):
    """Messages that wait for a run."""

    list = over_http(AsyncMailbox.list, Route(method="GET", path="/mailbox", names={"key": "business_key"}))
    drop = over_http(AsyncMailbox.drop, Route(method="DELETE", path="/mailbox/{key}"))


class ClientSinks(ClientGroup):
    """Where events go."""

    remove = over_http(AsyncSinks.remove, Route(method="DELETE", path="/sinks/{name}", refused=("by",)))
    list = over_http(AsyncSinks.list, Route(method="GET", path="/sinks", pages="sinks"))
    test = over_http(
        AsyncSinks.test,
        Route(method="POST", path="/sinks/{name}/test", refused=("http", "secrets"), repeatable=False),
    )

    async def add(
        self,
        name: str,
        kind: str,
        *,
        on: Any = ("*",),
        options: Any = None,
        events: Any = ("emitted",),
        replace: bool = False,
        by: str | None = None,
    ) -> dict[str, Any]:
        """Add a sink; with `replace`, also one that is there."""
        given = {"name": name, "kind": kind, "on": on, "options": options, "events": events, "by": by}
        route = (
            Route(method="PUT", path="/sinks/{name}")
            if replace
            else Route(method="POST", path="/sinks", repeatable=False)
        )
        found: dict[str, Any] = await perform(self.service, route, given)
        return found


class ClientOutbox(ClientGroup):
    """Events that are not delivered yet."""

    list = over_http(
        AsyncOutbox.list, Route(method="GET", path="/outbox", names={"after": "cursor"}, pages="deliveries")
    )
    show = over_http(AsyncOutbox.show, Route(method="GET", path="/runs/{run_id}/outbox/{sink}"))
    redrive = over_http(AsyncOutbox.redrive, Route(method="POST", path="/outbox/redrive"))
    drop = over_http(AsyncOutbox.drop, Route(method="POST", path="/runs/{run_id}/outbox/{sink}/drop"))
    status = over_http(AsyncOutbox.status, Route(method="GET", path="/outbox/status"))
    history = over_http(AsyncOutbox.history, Route(method="GET", path="/outbox/history"))

    def __getattr__(self, name: str) -> NoReturn:
        refuse_without_database(f"outbox.{name}", name, ("take", "ack", "fail"))


class ClientTriggers(ClientGroup):
    """What starts runs by itself."""

    list = over_http(AsyncTriggers.list, Route(method="GET", path="/triggers", pages="triggers"))
    show = over_http(AsyncTriggers.show, Route(method="GET", path="/triggers/{name}"))
    next = over_http(AsyncTriggers.next, Route(method="GET", path="/triggers/{name}/next", names={"count": "limit"}))
    add = over_http(
        AsyncTriggers.add,
        Route(method="POST", path="/triggers", inner="trigger"),
    )
    remove = over_http(AsyncTriggers.remove, Route(method="DELETE", path="/triggers/{name}", refused=("by",)))
    pause = over_http(AsyncTriggers.pause, Route(method="POST", path="/triggers/{name}/pause"))
    resume = over_http(AsyncTriggers.resume, Route(method="POST", path="/triggers/{name}/resume"))
    fire = over_http(AsyncTriggers.fire, Route(method="POST", path="/triggers/{name}/fire", repeatable=False))
    backfill = over_http(
        AsyncTriggers.backfill, Route(method="POST", path="/triggers/{name}/backfills", repeatable=False)
    )
    stop_backfill = over_http(
        AsyncTriggers.stop_backfill, Route(method="POST", path="/triggers/{name}/backfills/{backfill}/stop")
    )
    emit = over_http(AsyncTriggers.emit, Route(method="POST", path="/events", repeatable=False))


def refuse_without_database(what: str, name: str, absent: tuple[str, ...]) -> NoReturn:
    """The answer for a method that needs the database itself."""
    if name in absent:
        raise InvalidInput(f"`{what}` needs the database itself: open the engine with its URL.")
    raise AttributeError(f"a client has no {what}")
