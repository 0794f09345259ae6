"""What tests of operations share: an opening of a database to act on, and what people ask of a run in one line."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from stepkeep.kernel.decision import Accepted
from stepkeep.operations import decisions
from stepkeep.store.protocol import Decide, Propose, Want
from tests.workbench import ACTOR, TENANT, Bench, benches

NOBODYS = "01a1e12c-57d6-75bf-abba-e99e88c4e41f"
"""An id that no run has."""


class Looks:
    """How often somebody locks runs and reads them, from now on."""

    def __init__(self, bench: Bench) -> None:
        self.count = 0
        self._change = bench.store.change
        bench.store.change = self.change  # type: ignore[method-assign]

    async def change(self, wants: Sequence[Want], decide: Decide, propose: Propose | None = None) -> None:
        self.count += 1
        await self._change(wants, decide, propose)


def on(url: str, act: Callable[[Bench], Awaitable[Any]]) -> Any:
    """Act on one opening of a database."""

    async def go() -> Any:
        async with benches(url) as [bench]:
            return await act(bench)

    return asyncio.run(go())


def on_several(url: str, count: int, act: Callable[[list[Bench]], Awaitable[Any]]) -> Any:
    """Act on several openings of one database, as several processes would have it."""

    async def go() -> Any:
        async with benches(url, count) as opened:
            return await act(opened)

    return asyncio.run(go())


async def approve(bench: Bench, run_id: str, step: str | None = None, by: str = ACTOR, comment: str = "") -> Accepted:
    return await decisions.decide_gate(
        bench.transactor, run_id, approve=True, tenant=TENANT, actor=by, step=step, comment=comment
    )


async def reject(bench: Bench, run_id: str, step: str | None = None, by: str = ACTOR, comment: str = "") -> Accepted:
    return await decisions.decide_gate(
        bench.transactor, run_id, approve=False, tenant=TENANT, actor=by, step=step, comment=comment
    )


async def send(bench: Bench, run_id: str, name: str, payload: bytes = b"null", **options: Any) -> Accepted:
    return await decisions.send(bench.transactor, run_id, name, payload, tenant=TENANT, actor=ACTOR, **options)


async def cancel(bench: Bench, run_id: str, **options: Any) -> Accepted:
    return await decisions.cancel(bench.transactor, run_id, tenant=TENANT, actor=ACTOR, **options)
