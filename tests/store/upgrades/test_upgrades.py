"""Databases of earlier programs, with live runs: after the upgrade all runs end, and every record is true.

`make.py` made the databases. Nothing in them was written by today's program.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from tests.databases import migrate_now
from tests.store.upgrades.seed import FILES, WANTED
from tests.store.upgrades.stored import COMMITS, restore

import stepkeep as sk
from stepkeep.kernel.errors import Conflict
from stepkeep.kernel.machine.states import RUN_TERMINAL

ENDS = dict.fromkeys(WANTED, "succeeded") | {
    "failed": "failed",
    "rolled back": "rolled_back",
    "undoing": "rolled_back",
    "cancelled": "cancelled",
}
"""How each run ends. That of `stopping` is a question of its effects, which an earlier program judged otherwise."""


@pytest.fixture(params=COMMITS)
def old_url(request: pytest.FixtureRequest, empty_url: str, runner: asyncio.Runner) -> str:
    runner.run(restore(request.param, empty_url))
    migrate_now(empty_url)
    return empty_url


async def runs_of(engine: sk.AsyncEngine) -> dict[str, str]:
    return {one["business_key"]: one["id"] for one in (await engine.runs(limit=100))["runs"]}


async def states_of(engine: sk.AsyncEngine, runs: dict[str, str]) -> dict[str, str]:
    return {name: str((await engine.result(run)).state) for name, run in runs.items()}


async def certify_all(engine: sk.AsyncEngine, runs: dict[str, str]) -> None:
    for name, run in runs.items():
        certificate = await engine.certify(run)
        assert certificate.ok, f"{name}: {certificate}"


async def test_every_run_is_as_it_was_left_and_its_record_is_true(old_url: str) -> None:
    async with sk.AsyncEngine(old_url, actor="ann") as engine:
        runs = await runs_of(engine)
        assert await states_of(engine, runs) == WANTED
        await certify_all(engine, runs)


async def test_every_run_ends_with_todays_program_and_its_record_is_true(old_url: str) -> None:
    async with sk.AsyncEngine(old_url, actor="ann") as engine:
        runs = await runs_of(engine)
        await engine.start_idle(runs["idle"])
        await engine.users.create("bea")
        await engine.users.grant("bea", role="finance")
        # An early gate takes everybody who has the role now; a later one, who had it when the gate opened.
        with suppress(Conflict):
            await engine.interventions.reassign(runs["gate"], "sign", to=["bea"], reason="she is new", by="cyd")
        await engine.approve(runs["gate"], by="bea")
        await engine.send(runs["message"], "go")
        await engine.send(runs["waiting"], "paid")
        token = await engine.reissue_token(runs["manual"], "deliver", reason="it is the new program's now")
        await engine.complete(runs["manual"], "deliver", token=token["token"])

        async def all_ended() -> bool:
            return all(state in RUN_TERMINAL for state in (await states_of(engine, runs)).values())

        await engine.worker(concurrency=20, capabilities=["elsewhere"]).run_until(all_ended)
        states = await states_of(engine, runs)
        assert states.pop("stopping") in ("rolled_back", "failed")
        assert states == {name: end for name, end in ENDS.items() if name != "stopping"}
        await certify_all(engine, runs)


async def test_an_unchanged_file_is_still_what_was_published_and_a_repeated_start_returns_its_run(
    old_url: str,
) -> None:
    async with sk.AsyncEngine(old_url, actor="ann") as engine:
        runs = await runs_of(engine)
        for file in sorted(FILES.glob("*.yaml")):
            assert (await engine.publish(file)).definition.version == 1
        again = await engine.start(FILES / "ok.yaml", {}, business_key="done", idempotency_key="key of done")
        assert (again.run_id, again.created) == (runs["done"], False)


async def test_a_file_that_says_something_else_is_still_refused(old_url: str, tmp_path: Path) -> None:
    async with sk.AsyncEngine(old_url, actor="ann") as engine:
        written = (FILES / "ok.yaml").read_text()
        changed = tmp_path / "ok.yaml"
        for other in (
            written.replace("on_failure: skip", "on_failure: abort"),
            written.replace(
                "    undo: upgrade.quick\n", "    undo: { uses: upgrade.quick, retry: { max_attempts: 7 } }\n"
            ),
            written.replace("    on_failure: skip\n", "    on_failure: skip\n    retry: { jitter: 0.25 }\n"),
        ):
            assert other != written
            changed.write_text(other)
            with pytest.raises(Conflict, match="published before with other content"):
                await engine.publish(changed)
