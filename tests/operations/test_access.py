"""Keys: the owner is the actor, the tenant is the key's, scopes bound what is done, and the secret shows up nowhere."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.edges.secret_values import KNOWN
from stepkeep.engine import AsyncEngine
from stepkeep.engine.interventions import AsyncInterventions
from stepkeep.engine.jobs import AsyncJobs
from stepkeep.engine.limits import AsyncLimits, AsyncPauses, AsyncResources, AsyncSlots
from stepkeep.kernel.errors import Conflict, InvalidInput, NotAllowed, NotFound
from stepkeep.operations import access
from stepkeep.operations.access import OPERATIONS, SCOPES, Scope, guarded, parse_key
from stepkeep.operations.remote.remote_work import RemoteWork
from stepkeep.operations.remote.work_state import WorkState
from tests.operations.test_principals import later
from tests.suites import some

HOUR = 3600 * 1_000_000
ORDER = sk.Workflow("order", version=1)
ORDER.approval("sign")
ORDER.step("ship", "access.ship", after="sign")


def handlers() -> Registry:
    registry = Registry()
    registry.register(HandlerSpec(name="access.ship", function=lambda: "shipped"))
    return registry


@asynccontextmanager
async def on(url: str) -> AsyncIterator[AsyncEngine]:
    async with AsyncEngine(url, tenant="acme", actor="root", registry=handlers()) as engine:
        yield engine


def opened(url: str, key: str, **options: Any) -> AsyncEngine:
    return AsyncEngine(url, key=key, registry=handlers(), **options)


async def key_of(engine: AsyncEngine, owner: str, *scopes: str, **options: Any) -> str:
    """A key for a person, who is registered first if need be."""
    if owner not in [one["name"] for one in (await engine.users.list()).users]:
        await engine.users.create(owner)
    made = await engine.keys.create(owner, scopes=scopes or [scope.value for scope in Scope], **options)
    return str(made["secret"])


async def refused_by(rule: str, work: Awaitable[Any]) -> NotAllowed:
    with pytest.raises(NotAllowed) as refused:
        await work
    assert refused.value.rule == rule, refused.value
    return refused.value


# -- the key is the caller -------------------------------------------------------------------------------------------
async def test_with_a_key_the_actor_is_its_owner_and_the_tenant_is_its_tenant(database_url: str) -> None:
    async with on(database_url) as engine:
        key = await key_of(engine, "ann", "start", "decide", "read", "operate")
        async with opened(database_url, key) as ann:
            assert (ann.tenant, ann.actor) == ("acme", "ann")
            run = (await ann.start(ORDER)).run_id
            done = await ann.approve(run, "sign")
            assert done["by"] == "ann"
        causes = [line for line in await engine.log(run) if b'"actor":"ann"' in line and b'"detail"' in line]
        assert len(causes) == 2
        assert all(f'"key":"{parse_key(key).id}"'.encode() in line for line in causes)
        assert (await engine.certify(run)).ok


async def test_a_key_may_name_its_owner_alone_unless_it_may_vouch(database_url: str) -> None:
    async with on(database_url) as engine:
        run = (await engine.start(ORDER)).run_id
        plain, vouching = await key_of(engine, "ann", "decide"), await key_of(engine, "portal", "decide", "vouch")
        async with opened(database_url, plain) as ann:
            await refused_by("key_owner", ann.approve(run, "sign", by="bea"))
        async with opened(database_url, vouching) as portal:
            done = await portal.approve(run, "sign", by="bea")
            assert done["by"] == "bea"
        [said] = [line for line in await engine.log(run) if b'"gate_decided"' in line and b'"vouched_by"' in line]
        assert b'"vouched_by":"portal"' in said


async def test_a_wrong_key_is_refused_in_one_way_and_is_never_quoted(database_url: str) -> None:
    async with on(database_url) as engine:
        key = await key_of(engine, "ann", "read")
        credential = parse_key(key)
        wrong = key[:-1] + ("A" if key[-1] != "A" else "B")
        unknown = f"sk_{'0' * 16}_{credential.secret}"
        for bad in (wrong, unknown):
            refused = await refused_by("key_invalid", opened(database_url, bad).open())
            assert credential.secret not in str(refused)
            assert bad not in str(refused)
        await refused_by("key_tenant", opened(database_url, key, tenant="other").open())
        for malformed in ("", "sk_", key + "x", key.upper(), f"{key} {key}", 7, b"x"):
            with pytest.raises(InvalidInput, match="the key is not one") as told:
                opened(database_url, malformed)  # type: ignore[arg-type]
            assert credential.secret not in str(told.value)
        with pytest.raises(InvalidInput, match="not both"):
            opened(database_url, key, actor="bea")


async def test_no_part_of_a_secret_shows_up_in_reprs_logs_rows_or_the_record(database_url: str) -> None:
    async with on(database_url) as engine:
        key = await key_of(engine, "ann", "read")
        credential = parse_key(key)
        assert credential.secret not in f"{credential!r} {credential}"
        record = logging.LogRecord("x", logging.ERROR, "", 0, "using %s", (key,), None)
        KNOWN.filter(record)
        assert credential.secret not in record.getMessage()
        rows = await engine.store.people.list_keys("acme")
        told = f"{rows} {await engine.keys.list()} {await engine.users.history()} {await engine.users.show('ann')}"
        assert credential.secret not in told
        async with opened(database_url, key) as ann:
            assert credential.secret not in f"{ann!r} {ann.access.__dict__}"


# -- the end of a key ------------------------------------------------------------------------------------------------
async def test_a_key_that_was_revoked_is_refused_by_an_engine_that_is_open(database_url: str) -> None:
    """The engine has just read the key; the decision reads it again, in its own transaction."""

    async with on(database_url) as engine:
        run = (await engine.start(ORDER)).run_id
        key = await key_of(engine, "ann")
        async with opened(database_url, key) as ann:
            await ann.show(run)
            await engine.keys.revoke(parse_key(key).id)
            for work in (ann.approve(run, "sign"), ann.cancel(run), ann.send(run, "paid")):
                await refused_by("key_revoked", work)
        assert (await engine.show(run))["run"]["state"] == "blocked"
        await refused_by("key_revoked", opened(database_url, key).open())
        with pytest.raises(Conflict, match="revoked already"):
            await engine.keys.revoke(parse_key(key).id)


async def test_a_disabled_person_is_refused_with_and_without_a_key(database_url: str) -> None:
    async with on(database_url) as engine:
        run = (await engine.start(ORDER)).run_id
        key = await key_of(engine, "ann")
        async with opened(database_url, key) as ann:
            await engine.users.disable("ann")
            await refused_by("key_revoked", ann.approve(run, "sign"))
        await refused_by("disabled", engine.approve(run, "sign", by="ann"))
        with pytest.raises(Conflict, match="gets no key"):
            await engine.keys.create("ann", scopes=["read"])


async def test_a_key_expires_by_the_clock_of_the_database(database_url: str) -> None:
    async with on(database_url) as engine:
        run = (await engine.start(ORDER)).run_id
        key = await key_of(engine, "ann", expires_in="1h")
        async with opened(database_url, key) as ann:
            ann.store.clock_offset = 2 * HOUR
            await refused_by("key_expired", ann.approve(run, "sign"))
        late = opened(database_url, key)
        late.store.clock_offset = 2 * HOUR
        await refused_by("key_expired", late.open())
        for bad in (
            {"expires_in": "soon"},
            {"expires_at": later(hours=-1)},
            {"expires_in": "1h", "expires_at": later(hours=1)},
        ):
            with pytest.raises(InvalidInput):
                await engine.keys.create("ann", scopes=["read"], **bad)


async def test_a_rotated_key_overlaps_with_its_successor_and_then_ends(database_url: str) -> None:
    async with on(database_url) as engine:
        old = await key_of(engine, "ann", "read", expires_in="90d")
        made = await engine.keys.rotate(parse_key(old).id, overlap="1h")
        new = made["secret"]
        assert made["key"]["replaces"] == parse_key(old).id
        assert made["key"]["scopes"] == ["read"]
        ends = datetime.fromisoformat(made["key"]["expires_at"])
        assert timedelta(days=89) < ends - datetime.now(UTC) < timedelta(days=91)
        for key in (old, new):
            async with opened(database_url, key) as ann:
                assert ann.actor == "ann"
        late = opened(database_url, old)
        late.store.clock_offset = 2 * HOUR
        await refused_by("key_expired", late.open())
        fresh = opened(database_url, new)
        fresh.store.clock_offset = 2 * HOUR
        async with fresh:
            assert (await fresh.keys.list(owner="ann")).keys[0].state == "live"
        await engine.keys.revoke(parse_key(new).id)
        with pytest.raises(Conflict, match="has ended"):
            await engine.keys.rotate(parse_key(new).id)
        with pytest.raises(NotFound):
            await engine.keys.rotate("nothing")
        assert [one["event"] for one in (await engine.users.history("ann")).history][1:] == [
            "key_created",
            "key_rotated",
            "key_revoked",
        ]


async def test_a_person_rotates_and_revokes_their_own_keys_and_no_others(database_url: str) -> None:
    async with on(database_url) as engine:
        mine, theirs = await key_of(engine, "ann", "read"), await key_of(engine, "bea", "read")
        async with opened(database_url, mine) as ann:
            await refused_by("scope", ann.keys.revoke(parse_key(theirs).id))
            await refused_by("scope", ann.keys.create("ann", scopes=["admin"]))
            new = (await ann.keys.rotate(parse_key(mine).id)).key.id
            await ann.keys.revoke(new)
        assert [one["state"] for one in (await engine.keys.list(owner="bea")).keys] == ["live"]


# -- scopes ----------------------------------------------------------------------------------------------------------
def test_every_operation_has_a_row_and_every_row_an_operation() -> None:
    faces = {
        "": sk.AsyncEngine,
        "tenants.": sk.AsyncTenants,
        "users.": sk.AsyncUsers,
        "keys.": sk.AsyncKeys,
        "network.": sk.AsyncNetwork,
        "hooks.": sk.AsyncHooks,
        "audit.": sk.AsyncAudit,
        "mailbox.": sk.AsyncMailbox,
        "sinks.": sk.AsyncSinks,
        "outbox.": sk.AsyncOutbox,
        "triggers.": sk.AsyncTriggers,
        "versions.": sk.AsyncVersions,
        "jobs.": AsyncJobs,
        "interventions.": AsyncInterventions,
        "pauses.": AsyncPauses,
        "slots.": AsyncSlots,
        "limits.": AsyncLimits,
        "resources.": AsyncResources,
        "streams.": sk.AsyncStreams,
        "conversations.": sk.AsyncConversations,
        "continuations.": sk.AsyncContinuations,
        "migrations.": sk.AsyncMigrations,
        "work.": RemoteWork,
    }
    found = {
        prefix + name
        for prefix, kind in faces.items()
        for name, method in vars(kind).items()
        if not name.startswith("_") and inspect.iscoroutinefunction(method)
    }
    assert found - {"open", "close", "stop_workers"} == set(OPERATIONS)
    assert set(SCOPES) == set(Scope)

    with pytest.raises(LookupError, match="no row"):

        @guarded()
        class Loose:
            async def anything(self) -> None: ...


class Working:
    """The operations of remote workers under the name of their rows; the service makes them for each caller."""

    def __init__(self, work: RemoteWork) -> None:
        self.work = work


CALLS: dict[str, tuple[Any, ...]] = {
    "run": (ORDER,),
    "publish": (ORDER,),
    "start": (ORDER,),
    "decide": ("RUN", "sign", "retry"),
    "send": ("RUN", "paid"),
    "users.grant": ("ann",),
    "users.delegate": ("bea", "ann"),
    "users.undelegate": ("bea", "ann"),
    "users.create": ("new",),
    "keys.create": ("ann",),
    "tenants.set_vouching": ("acme", "refused"),
}
NAMED: dict[str, dict[str, Any]] = {
    "complete": {"token": "t"},
    "reissue_token": {"reason": "lost"},
    "users.grant": {"role": "x"},
    "users.revoke": {"role": "x"},
    "users.delegate": {"open_ended": True},
    "keys.create": {"scopes": ["read"]},
    "prune": {"archive": None},
    "outbox.redrive": {"sink": "a", "reason": "why"},
    "outbox.drop": {"reason": "why"},
}


@pytest.mark.parametrize(
    "operation", some(sorted(set(OPERATIONS) - {"keys.rotate", "keys.revoke", "users.undelegate"}), 3)
)
async def test_a_key_without_the_scope_of_an_operation_is_refused_before_anything_happens(
    tmp_path: Any, operation: str
) -> None:
    url = f"sqlite:///{tmp_path}/s.db"

    async with on(url) as engine:
        run = (await engine.start(ORDER)).run_id
        await key_of(engine, "bea", "read")
        needed = OPERATIONS[operation] or {Scope.ADMIN}
        key = await key_of(engine, "ann", *(scope.value for scope in Scope if scope not in needed))
        before = await engine.users.history()
        async with opened(url, key) as ann:
            face: Any = ann
            if operation.startswith("work."):
                face = Working(RemoteWork(ann.transactor, ann.access, WorkState()))
            for part in operation.split("."):
                face = getattr(face, part)
            given = CALLS.get(operation, (run, "sign") if operation in ("complete", "reissue_token") else None)
            if given is None:
                wanted = [one for one in inspect.signature(face).parameters.values() if one.default is one.empty]
                positional = [one for one in wanted if one.kind is one.POSITIONAL_OR_KEYWORD]
                given = tuple("ann" if operation.count(".") else run for _ in positional)
            given = tuple(run if one == "RUN" else one for one in given)
            await refused_by("scope", face(*given, **NAMED.get(operation, {})))
        assert await engine.users.history() == before
        assert len((await engine.runs())["runs"]) == 1


async def test_a_key_that_may_start_starts_what_is_published_and_publishes_nothing(database_url: str) -> None:
    async with on(database_url) as engine:
        key = await key_of(engine, "ann", "start")
        async with opened(database_url, key) as ann:
            with pytest.raises(InvalidInput, match="not published yet"):
                await ann.start(ORDER)
            await engine.publish(ORDER)
            assert (await ann.start(ORDER)).created
            assert (await ann.start("order")).created


async def test_a_person_delegates_their_own_authority_and_nobody_elses(database_url: str) -> None:
    async with on(database_url) as engine:
        key = await key_of(engine, "ann", "decide")
        await engine.users.create("bea")
        async with opened(database_url, key) as ann:
            await ann.users.delegate("ann", "bea", open_ended=True)
            await ann.users.undelegate("ann", "bea")
            await refused_by("scope", ann.users.delegate("bea", "ann", open_ended=True))
        reader = await key_of(engine, "ann", "read")
        async with opened(database_url, reader) as ann:
            await refused_by("scope", ann.users.delegate("ann", "bea", open_ended=True))


@pytest.mark.parametrize("bad", [[], ["everything"], ["read", ""], "read", [7], None])
async def test_a_scope_outside_the_closed_list_is_refused(tmp_path: Any, bad: Any) -> None:
    async with on(f"sqlite:///{tmp_path}/s.db") as engine:
        await engine.users.create("ann")
        with pytest.raises(InvalidInput):
            await engine.keys.create("ann", scopes=bad)
        with pytest.raises(NotFound):
            await engine.keys.create("nobody", scopes=["read"])


# -- tenants that refuse vouching ------------------------------------------------------------------------------------
async def test_a_tenant_that_refuses_vouching_takes_requests_with_a_key_alone(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "FRESH_SECONDS", 0.0)

    async with on(database_url) as engine:
        run = (await engine.start(ORDER)).run_id
        key = await key_of(engine, "ann")
        await engine.tenants.create("acme", vouching="refused")
        for work in (
            engine.approve(run, "sign"),
            engine.approve(run, "sign", by="ann"),
            engine.start(ORDER),
            engine.cancel(run),
            engine.send(run, "paid"),
            engine.users.create("eve"),
            engine.users.delegate("ann", "eve", open_ended=True),
            engine.keys.create("ann", scopes=["admin"]),
            engine.keys.revoke(parse_key(key).id),
            engine.tenants.set_vouching("acme", "allowed"),
        ):
            await refused_by("vouching_refused", work)
        async with AsyncEngine(database_url, tenant="elsewhere", actor="root") as elsewhere:
            await refused_by("vouching_refused", elsewhere.tenants.set_vouching("acme", "allowed"))
        assert (await engine.show(run))["run"]["state"] == "blocked", "reading needs no name"
        async with opened(database_url, key) as ann:
            assert [one["name"] for one in (await ann.tenants.list()).tenants] == ["acme"]
            await refused_by("key_tenant", ann.tenants.create("other"))
            assert (await ann.approve(run, "sign"))["by"] == "ann"
            await ann.tenants.set_vouching("acme", "allowed")
        await engine.users.create("eve")


async def test_a_decision_reads_the_setting_of_its_tenant_anew(database_url: str) -> None:
    """An engine that has just looked still cannot decide without a key once vouching is refused."""

    async with on(database_url) as engine:
        run = (await engine.start(ORDER)).run_id
        key = await key_of(engine, "ann")
        async with opened(database_url, key) as ann:
            await ann.tenants.create("acme", vouching="refused")
        await refused_by("vouching_refused", engine.approve(run, "sign"))


# -- workers ---------------------------------------------------------------------------------------------------------
async def test_a_worker_of_a_key_has_its_owner_on_record(database_url: str) -> None:
    async with on(database_url) as engine:
        key = await key_of(engine, "builder", "work")
        async with opened(database_url, key) as builder:
            hosted = await builder.start_worker()
            await hosted.stop()
        hosted = await engine.start_worker()
        await hosted.stop()
        owners = [row.owner for row in await engine.store.list_workers("acme")]
        assert owners == ["builder", None]
