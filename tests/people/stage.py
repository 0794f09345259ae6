"""A tenant with people who have roles and keys, for tests that try to decide what they may not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.errors import Refused
from stepkeep.kernel.machine.rows import Vote
from stepkeep.operations.access import Scope

TENANT = "acme"
SECOND = 1_000_000
HOUR = 3600 * SECOND
FINANCE = ("ann", "bea", "cyd", "dan")
"""The people with the role finance. `ann` asks for the runs; `zoe` is registered and has no role."""

PAYOUT = sk.Workflow("payout")
PAYOUT.approval("sign", roles=["finance"], quorum=2, not_=["requester"], deadline="1d")


def noted(ctx: sk.Context) -> str:
    TOKENS.append(str(ctx.completion_token))
    return "noted"


def fails() -> None:
    raise sk.StepError("no")


async def renewed(ctx: Any, times: int) -> None:
    if times:
        ctx.continue_as_new({"times": times - 1})
    await ctx.gate("Pay?", not_=["requester"])


HANDLERS = {"pay": lambda: "paid", "note": noted, "fail": fails, "renewed": renewed}
TOKENS: list[str] = []


def handlers() -> Registry:
    registry = Registry()
    for name, function in HANDLERS.items():
        registry.register(HandlerSpec(name=f"people.{name}", function=function))
    return registry


def later(hours: float) -> datetime:
    return datetime.now(UTC) + timedelta(hours=hours)


class Stage:
    """The engine of the host, which vouches for names, and the engines of people with keys."""

    def __init__(self, engine: AsyncEngine, url: str) -> None:
        self.engine, self.url = engine, url

    async def people(self) -> None:
        for name in (*FINANCE, "zoe"):
            await self.engine.users.create(name)
        for name in FINANCE:
            await self.engine.users.grant(name, role="finance")

    async def run(self, workflow: sk.Workflow = PAYOUT, by: str = "ann") -> str:
        """A run that waits for people, asked for by this person."""
        return (await self.engine.run(workflow, by=by)).run_id

    async def key(self, owner: str, *scopes: str, **options: Any) -> str:
        made = await self.engine.keys.create(owner, scopes=scopes or [scope.value for scope in Scope], **options)
        return str(made["secret"])

    def opened(self, key: str, **options: Any) -> AsyncEngine:
        return AsyncEngine(self.url, key=key, registry=handlers(), **options)

    async def votes(self, run_id: str) -> list[Vote]:
        return list(await self.engine.store.read_votes(TENANT, run_id))

    async def refused(self, rule: str, run_id: str, work: Awaitable[Any]) -> Refused:
        """Await what must be refused: by this rule, or with this error. No vote and no state changes by it."""
        before = await self.votes(run_id), (await self.engine.show(run_id))["run"]["state"]
        with pytest.raises(Refused) as told:
            await work
        found = getattr(told.value, "rule", None) or type(told.value).__name__
        assert found == rule, told.value
        assert (await self.votes(run_id), (await self.engine.show(run_id))["run"]["state"]) == before
        return told.value

    async def passes(self, run_id: str, *names: str, step: str | None = None) -> None:
        """The gate is open to these people, and their decisions settle it."""
        for name in names:
            await self.engine.approve(run_id, step, by=name)
        assert (await self.engine.show(run_id))["run"]["state"] == "succeeded"


@asynccontextmanager
async def on(url: str) -> AsyncIterator[Stage]:
    """A stage with its people."""
    async with AsyncEngine(url, tenant=TENANT, actor="root", registry=handlers()) as engine:
        stage = Stage(engine, url)
        await stage.people()
        yield stage
