"""Tenants, users, roles, groups and delegations: every change on record, with its actor, and nothing by stealth."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from stepkeep.engine import AsyncEngine
from stepkeep.kernel.errors import Conflict, InvalidInput, NotAllowed, NotFound, Unreadable
from stepkeep.kernel.people.authority import Caller, MembershipKind
from stepkeep.operations.people.principals import look_alikes
from tests.damage import damage

TENANT = "acme"
HOUR = 3600 * 1_000_000
ROLE = MembershipKind.ROLE


@asynccontextmanager
async def on(url: str) -> AsyncIterator[AsyncEngine]:
    async with AsyncEngine(url, tenant=TENANT, actor="root") as engine:
        yield engine


def later(**delta: float) -> datetime:
    return datetime.now(UTC) + timedelta(**delta)


async def events(engine: AsyncEngine, name: str | None = None) -> list[tuple[str, str, str]]:
    found = await engine.users.history(name)
    assert found["chain"]["is_intact"]
    return [(one["event"], one["subject"], one["by"]) for one in found["history"]]


# -- names -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "ann ",
        "a nn",
        "ann\u200b",
        "ann\n",
        "ann\x00",
        "\u202eann",
        "ａｎｎ",
        "аnn",
        "x" * 256,
        "-x",
        "ﬁn",
        7,
        None,
    ],
)
async def test_a_name_that_could_mislead_is_refused(tmp_path: Path, name: Any) -> None:
    async with on(f"sqlite:///{tmp_path}/s.db") as engine:
        with pytest.raises(InvalidInput):
            await engine.users.create(name)
        assert (await engine.users.list()).users == []


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("ann", "Ann"),
        ("ann", "ANN"),
        ("straße", "strasse"),
        ("\u0455\u0441\u043e", "sco"),
        ("é", "É"),
        ("κοα", "koa"),
        ("bill", "biII"),
        ("bill", "bi1l"),
        ("bill", "bi|l"),
        ("biII", "bill"),
        ("greg", "ɡreg"),
        ("bob", "b0b"),
        ("jose", "josé"),
        ("ian", "Ian"),
        ("lan", "Ian"),
        ("ann", "ᴀɴɴ"),
    ],
)
async def test_a_name_that_looks_like_a_registered_one_is_refused(database_url: str, first: str, second: str) -> None:
    async with on(database_url) as engine:
        await engine.users.create(first)
        with pytest.raises(Conflict, match="looks like"):
            await engine.users.create(second)
        with pytest.raises(NotFound, match="There is"):
            await engine.users.grant(second, role="payer")
        assert [one["name"] for one in (await engine.users.list()).users] == [first]


async def test_names_that_an_earlier_release_let_in_beside_each_other_are_reported_and_kept(database_url: str) -> None:
    async with on(database_url) as engine:
        for name in ("bill", "bea", "Ian"):
            await engine.users.create(name)
        for other, like in (("bi1l", "bill"), ("lan", "Ian"), ("ian", "Ian")):
            columns = "kind, display, created_at, created_by"
            await damage(
                database_url,
                f"insert into principals (tenant, name, folded, {columns}) "
                f"select tenant, '{other}', 'old {other}', {columns} from principals where name = '{like}'",
            )
        assert await look_alikes(engine.store, TENANT) == [["Ian", "ian"], ["Ian", "lan"], ["bi1l", "bill"]]
        await engine.users.grant("bi1l", role="payer")
        await engine.users.disable("bi1l")
        assert len((await engine.users.list()).users) == 6


async def test_roles_and_groups_are_written_in_plain_letters(database_url: str) -> None:
    async with on(database_url) as engine:
        await engine.users.create("ann")
        for given in ({"role": "finance\ufe0f"}, {"group": "fin\u0430nce"}, {"role": "ｆinance"}):
            with pytest.raises(InvalidInput):
                await engine.users.grant("ann", **given)
        await engine.users.grant("ann", role="head of finance")


async def test_names_are_case_sensitive_and_may_have_any_one_script(database_url: str) -> None:
    names = ["ann@example.org", "Zoë", "Жанна", "山田", "o'neil", "u-1_2.3"]

    async with on(database_url) as engine:
        for name in names:
            assert (await engine.users.create(name)).user.name == name
        with pytest.raises(NotFound):
            await engine.users.show("zoë")


# -- users -----------------------------------------------------------------------------------------------------------
async def test_users_are_created_disabled_and_enabled_on_record(database_url: str) -> None:
    async with on(database_url) as engine:
        made = (await engine.users.create("ann", display="Ann Lee")).user
        assert (made["kind"], made["display"], made["created_by"], made["disabled_at"]) == (
            "user",
            "Ann Lee",
            "root",
            None,
        )
        await engine.users.create("portal", kind="service", by="bea")
        with pytest.raises(Conflict, match="already"):
            await engine.users.create("ann")
        key = (await engine.keys.create("ann", scopes=["read"])).key.id
        gone = await engine.users.disable("ann")
        assert gone["revoked_keys"] == [key]
        assert gone["user"]["disabled_by"] == "root"
        for refused in (
            engine.users.disable("ann"),
            engine.users.grant("ann", role="payer"),
            engine.users.enable("portal"),
        ):
            with pytest.raises(Conflict):
                await refused
        assert (await engine.users.enable("ann")).user.disabled_at is None
        assert [one["state"] for one in (await engine.keys.list()).keys] == ["revoked"], "they stay revoked"
        assert await events(engine, "ann") == [
            ("user_created", "ann", "root"),
            ("key_created", "ann", "root"),
            ("user_disabled", "ann", "root"),
            ("user_enabled", "ann", "root"),
        ]
        [service] = (await engine.users.history("portal")).history
        assert (service["by"], service["vouched_by"]) == ("bea", "root")


async def test_users_are_listed_in_pages_of_their_tenant(database_url: str) -> None:
    async with on(database_url) as engine:
        for name in ("cyd", "ann", "bea"):
            await engine.users.create(name)
        first = await engine.users.list(limit=2)
        assert ([one["name"] for one in first["users"]], first["is_complete"]) == (["ann", "bea"], False)
        rest = await engine.users.list(after="bea")
        assert ([one["name"] for one in rest["users"]], rest["is_complete"]) == (["cyd"], True)
        async with AsyncEngine(database_url, tenant="other", actor="root") as other:
            assert (await other.users.list()).users == []
            with pytest.raises(NotFound):
                await other.users.show("ann")
            await other.users.create("ann")


# -- roles and groups ------------------------------------------------------------------------------------------------
async def test_a_role_counts_within_its_dates_and_until_it_is_revoked(database_url: str) -> None:
    async def roles(engine: AsyncEngine) -> list[str]:
        return list((await engine.users.show("ann")).user.roles)

    async with on(database_url) as engine:
        await engine.users.create("ann")
        await engine.users.grant("ann", role="payer", valid_from=later(hours=1), valid_to=later(hours=3))
        await engine.users.grant("ann", role="clerk")
        assert await roles(engine) == ["clerk"]
        engine.store.clock_offset += 2 * HOUR
        assert await roles(engine) == ["clerk", "payer"]
        with pytest.raises(Conflict, match="already"):
            await engine.users.grant("ann", role="payer")
        engine.store.clock_offset += 2 * HOUR
        assert await roles(engine) == ["clerk"]
        await engine.users.grant("ann", role="payer")
        await engine.users.revoke("ann", role="payer")
        await engine.users.revoke("ann", role="clerk")
        assert await roles(engine) == []
        with pytest.raises(NotFound, match="does not have"):
            await engine.users.revoke("ann", role="clerk")
        kept = (await engine.users.show("ann")).user.memberships
        assert len(kept) == 3, "what was given stays on record"
        assert [one for one, *_ in await events(engine)].count("revoked") == 2


async def test_a_role_of_a_group_counts_for_its_members(database_url: str) -> None:
    async with on(database_url) as engine:
        await engine.users.create("ann")
        await engine.users.grant("accounting", role="payer", to_group=True)
        await engine.users.grant("ann", group="accounting")
        user = (await engine.users.show("ann")).user
        assert (user["roles"], user["groups"]) == (["payer"], ["accounting"])
        await engine.users.revoke("accounting", role="payer", from_group=True)
        assert (await engine.users.show("ann")).user.roles == []
        await engine.users.grant("accounting", role="payer", to_group=True)
        await engine.users.revoke("ann", group="accounting")
        assert (await engine.users.show("ann")).user.roles == []
        with pytest.raises(InvalidInput, match="roles, not groups"):
            await engine.users.grant("accounting", group="everyone", to_group=True)


async def test_what_cannot_be_granted_is_refused_and_writes_nothing(database_url: str) -> None:
    async with on(database_url) as engine:
        await engine.users.create("ann")
        before = await events(engine)
        bad: list[dict[str, Any]] = [
            {},
            {"role": "a", "group": "b"},
            {"role": ""},
            {"role": " a"},
            {"role": "a\n"},
            {"role": "a", "valid_to": later(hours=-1)},
            {"role": "a", "valid_from": later(hours=2), "valid_to": later(hours=1)},
            {"role": "a", "valid_to": datetime(2030, 1, 1)},  # noqa: DTZ001 - without a zone on purpose
            {"role": "a", "valid_to": "tomorrow"},
            {"role": "a", "to_group": "yes"},
        ]
        for given in bad:
            with pytest.raises(InvalidInput):
                await engine.users.grant("ann", **given)
        with pytest.raises(NotFound):
            await engine.users.grant("nobody", role="a")
        assert await events(engine) == before


# -- delegations -----------------------------------------------------------------------------------------------------
async def test_a_delegation_has_dates_and_an_end_and_is_never_to_oneself(database_url: str) -> None:
    async with on(database_url) as engine:
        for name in ("ann", "bea"):
            await engine.users.create(name)
        await engine.users.grant("ann", role="payer")
        for to in ("ann", "Ann", "\u0430nn"):
            with pytest.raises(NotAllowed, match="themselves") as refused:
                await engine.users.delegate("ann", to, open_ended=True)
            assert refused.value.rule == "delegation_to_oneself"
        with pytest.raises(InvalidInput, match="an end, or none on purpose"):
            await engine.users.delegate("ann", "bea")
        with pytest.raises(InvalidInput, match="an end, or none on purpose"):
            await engine.users.delegate("ann", "bea", valid_to=later(hours=1), open_ended=True)
        with pytest.raises(NotFound):
            await engine.users.delegate("ann", "nobody", open_ended=True)
        given = (await engine.users.delegate("ann", "bea", valid_to=later(hours=1), reason="on leave")).delegation
        assert (given["delegator"], given["delegate"], given["reason"]) == ("ann", "bea", "on leave")
        with pytest.raises(Conflict, match="already"):
            await engine.users.delegate("ann", "bea", open_ended=True)
        caller = Caller(TENANT, "bea")
        [held] = (await engine.store.people.read_authorities([caller]))[caller].delegations
        assert (held.delegator, held.enabled, [one.name for one in held.memberships]) == ("ann", True, ["payer"])
        assert [one["id"] for one in (await engine.users.delegations()).delegations] == [given["id"]]
        ended = (await engine.users.undelegate("ann", "bea")).delegation
        assert ended["revoked_by"] == "root"
        with pytest.raises(NotFound):
            await engine.users.undelegate("ann", "bea")
        await engine.users.delegate("ann", "bea", valid_to=later(hours=1))
        engine.store.clock_offset += 2 * HOUR
        assert (await engine.users.delegations()).delegations == []
        await engine.users.disable("ann")
        authority = (await engine.store.people.read_authorities([caller]))[caller]
        assert not any(one.enabled for one in authority.delegations)


# -- tenants ---------------------------------------------------------------------------------------------------------
async def test_a_tenant_needs_no_row_and_is_created_once(database_url: str) -> None:
    async with on(database_url) as engine:
        assert (await engine.tenants.list()).tenants == []
        made = (await engine.tenants.create("acme")).tenant
        assert (made["vouching"], made["created_by"]) == ("allowed", "root")
        with pytest.raises(Conflict):
            await engine.tenants.create("acme")
        with pytest.raises(NotFound):
            await engine.tenants.set_vouching("nowhere", "refused")
        for value in ("perhaps", "", None):
            with pytest.raises(InvalidInput):
                await engine.tenants.set_vouching("acme", value)  # type: ignore[arg-type]
        with pytest.raises(Conflict, match="no key with the scope admin"):
            await engine.tenants.set_vouching("acme", "refused")
        with pytest.raises(Conflict, match="no key with the scope admin"):
            await engine.tenants.create("locked", vouching="refused")
        assert [one["name"] for one in (await engine.tenants.list()).tenants] == ["acme"]


# -- the record ------------------------------------------------------------------------------------------------------
async def test_fifty_changes_at_once_are_one_chain(database_url: str) -> None:
    async with on(database_url) as engine:
        done = await asyncio.gather(
            *(engine.users.create(f"user{number % 25}") for number in range(50)), return_exceptions=True
        )
        made = [one for one in done if not isinstance(one, BaseException)]
        others = [one for one in done if isinstance(one, BaseException)]
        assert len({one["user"]["name"] for one in made}) == len(made)
        listed = (await engine.users.list()).users
        assert len(listed) == len(made)
        assert all("already" in str(one) or "conflict" in str(one).lower() for one in others)
        assert len(await events(engine)) == len(made)


async def test_a_changed_entry_breaks_the_chain_by_number(database_url: str) -> None:
    async with on(database_url) as engine:
        for name in ("ann", "bea", "cyd"):
            await engine.users.create(name)
        await damage(database_url, "update people_journal set subject = 'zed' where seq = 2")
        chain = (await engine.users.history()).chain
        assert (chain["is_intact"], chain["broken_at"]) == (False, 2)


async def test_a_damaged_row_gives_nobody_a_right(database_url: str) -> None:
    async with on(database_url) as engine:
        await engine.users.create("ann")
        await engine.users.grant("ann", role="payer")
        await damage(database_url, "update principals set kind = 'king'")
        with pytest.raises(Unreadable, match="principals"):
            await engine.users.show("ann")
