"""A vote is never dated later than the end of the right by which it counts, and its evidence pack says so.

The end of a right is held up between its decision and its transaction, and a vote commits in that gap.
"""

from __future__ import annotations

import asyncio
import io
import zipfile
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.engine import AsyncEngine
from stepkeep.evidence.verifier import Pack, verify
from stepkeep.operations.access import parse_key
from stepkeep.store.principals import MakeChange, SubjectKind
from tests.people.stage import TENANT, Stage, handlers

ONE = sk.Workflow("one")
ONE.approval("sign", roles=["finance"], not_=["requester"])


class HeldUp:
    """An engine of an administrator whose change of people waits before its transaction until it is released."""

    def __init__(self, engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.arrived, self.released = asyncio.Event(), asyncio.Event()
        self._write = engine.store.people.write
        monkeypatch.setattr(engine.store.people, "write", self.write)

    async def write(self, tenant: str, make: MakeChange) -> None:
        self.arrived.set()
        await self.released.wait()
        await self._write(tenant, make)


async def vote_in_the_gap(
    stage: Stage, end: Callable[[AsyncEngine], Awaitable[Any]], vote: Callable[[str], Awaitable[Any]]
) -> str:
    """A run whose only vote commits after the end of its right was decided and before it is written."""
    run = await stage.run(ONE)
    async with AsyncEngine(stage.url, tenant=TENANT, actor="root", registry=handlers()) as admin:
        with pytest.MonkeyPatch.context() as monkeypatch:
            held = HeldUp(admin, monkeypatch)
            ending = asyncio.ensure_future(end(admin))
            await held.arrived.wait()
            await vote(run)
            held.released.set()
            await ending
    return run


async def vote_of(stage: Stage, run: str) -> int:
    """The time of the only vote of a run, whose evidence pack is in order."""
    with zipfile.ZipFile(io.BytesIO(await stage.engine.evidence(run))) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    assert verify(Pack(files)).findings == []
    [vote] = await stage.votes(run)
    return vote.at


async def test_a_role_that_is_revoked_while_its_person_votes(stage: Stage) -> None:
    run = await vote_in_the_gap(
        stage,
        lambda admin: admin.users.revoke("bea", role="finance"),
        lambda run: stage.engine.approve(run, by="bea"),
    )
    [row] = await stage.engine.store.people.read_memberships(TENANT, SubjectKind.PERSON, "bea")
    assert await vote_of(stage, run) < (row.revoked_at or 0)
    again = await stage.run(ONE)
    await stage.refused("approvers", again, stage.engine.approve(again, by="bea"))


async def test_a_group_that_its_member_leaves_or_that_loses_its_role_while_the_member_votes(stage: Stage) -> None:
    await stage.engine.users.create("yan")
    for name in ("zoe", "yan"):
        await stage.engine.users.grant(name, group="auditors")
    await stage.engine.users.grant("auditors", role="finance", to_group=True)
    ends: dict[str, Callable[[AsyncEngine], Awaitable[Any]]] = {
        "zoe": lambda admin: admin.users.revoke("zoe", group="auditors"),
        "yan": lambda admin: admin.users.revoke("auditors", role="finance", from_group=True),
    }
    for name, end in ends.items():
        run = await vote_in_the_gap(stage, end, lambda run, name=name: stage.engine.approve(run, by=name))
        await vote_of(stage, run)
        again = await stage.run(ONE)
        await stage.refused("approvers", again, stage.engine.approve(again, by=name))


async def test_a_group_that_is_joined_while_a_person_votes_gives_them_nothing(stage: Stage) -> None:
    await stage.engine.users.grant("auditors", role="finance", to_group=True)

    async def vote(run: str) -> None:
        await stage.refused("approvers", run, stage.engine.approve(run, by="zoe"))

    run = await vote_in_the_gap(stage, lambda admin: admin.users.grant("zoe", group="auditors"), vote)
    await stage.refused("approvers", run, stage.engine.approve(run, by="zoe"))
    again = await stage.run(ONE)
    await stage.passes(again, "zoe")


async def test_a_delegation_that_is_ended_while_its_person_votes(stage: Stage) -> None:
    await stage.engine.users.delegate("bea", "zoe", open_ended=True)
    run = await vote_in_the_gap(
        stage,
        lambda admin: admin.users.undelegate("bea", "zoe"),
        lambda run: stage.engine.approve(run, by="zoe", for_="bea"),
    )
    [row] = await stage.engine.store.people.read_delegations(TENANT, "zoe")
    assert await vote_of(stage, run) < (row.revoked_at or 0)


async def test_a_key_that_is_revoked_while_its_owner_votes(stage: Stage) -> None:
    key = await stage.key("bea", "decide")
    async with stage.opened(key) as bea:
        run = await vote_in_the_gap(stage, lambda admin: admin.keys.revoke(parse_key(key).id), bea.approve)
    row = await stage.engine.store.people.find_key(parse_key(key).id)
    assert row is not None
    assert await vote_of(stage, run) < (row.revoked_at or 0)


async def test_an_account_that_is_disabled_while_its_person_votes(stage: Stage) -> None:
    run = await vote_in_the_gap(
        stage,
        lambda admin: admin.users.disable("bea"),
        lambda run: stage.engine.approve(run, by="bea"),
    )
    row = await stage.engine.store.people.find_principal(TENANT, "bea")
    assert row is not None
    assert await vote_of(stage, run) < (row.disabled_at or 0)
    told = await stage.engine.users.history("bea")
    assert told["chain"]["is_intact"]
    again = await stage.run(ONE)
    await stage.refused("disabled", again, stage.engine.approve(again, by="bea"))
