"""Withdrawn versions: no run of one starts, live runs go on, triggers are told, and all of it is on record."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepkeep.kernel.errors import Conflict, InvalidInput, NotFound
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.definitions import withdrawn
from stepkeep.operations.settings import SettingKind, revisions
from stepkeep.operations.triggers import manage
from tests.databases import migrated_file
from tests.triggers.stage import BY_ANN, Stage, hourly
from tests.workbench import ACTOR, TENANT, Bench, benches, chain

WORK, OTHER = chain("report", 2), chain("other", 1)


async def withdraw(bench: Bench, reason: str = "it pays twice", version: int = 1) -> dict[str, Any]:
    told = await withdrawn.withdraw(bench.transactor, "report", version, caller=Caller(TENANT, ACTOR), reason=reason)
    bench.starter.withdrawals.forget(TENANT)
    return told


async def restore(bench: Bench) -> dict[str, Any]:
    told = await withdrawn.restore(bench.transactor, "report", 1, caller=Caller(TENANT, "bea"))
    bench.starter.withdrawals.forget(TENANT)
    return told


async def test_no_run_of_a_withdrawn_version_starts_and_live_runs_go_on(database_url: str) -> None:
    async with benches(database_url, 2) as opened:
        bench = opened[0]
        live = await bench.start(WORK)
        once = await bench.start(WORK, idempotency_key="k")
        assert (await withdraw(bench))["state"] == "withdrawn"
        with pytest.raises(Conflict, match=r"withdrawn by \S+: it pays twice.*stepkeep restore report 1"):
            await bench.start(WORK)
        await bench.start(OTHER)
        assert await bench.start(WORK, idempotency_key="k") == once, "asking again starts nothing"
        with pytest.raises(Conflict):
            await bench.start(WORK, idempotency_key="another")
        await bench.work_off()
        assert str(await bench.state(live)) == "succeeded"
        assert (await restore(bench))["state"] == "published"
        await bench.start(WORK)


async def test_other_processes_notice_within_two_seconds(database_url: str) -> None:
    async with benches(database_url, 2) as opened:
        one, other = opened
        now = 0.0
        other.transactor.monotonic = lambda: now
        await other.start(WORK)
        await withdraw(one)
        await other.start(WORK)
        now = withdrawn.FRESH_SECONDS
        with pytest.raises(Conflict, match="withdrawn"):
            await other.start(WORK)


async def test_every_change_is_on_record_and_none_is_made_twice(database_url: str) -> None:
    async with benches(database_url, 2) as opened:
        bench = opened[0]
        await bench.publish(WORK)
        await withdraw(bench)
        with pytest.raises(Conflict, match="already: it pays twice"):
            await withdraw(bench, "again")
        await restore(bench)
        with pytest.raises(Conflict, match="not withdrawn"):
            await restore(bench)
        kept = await revisions(bench.store, TENANT, SettingKind.WITHDRAWN, "report@1")
        assert [(one["by"], one["content"]) for one in kept] == [("bea", None), (ACTOR, {"reason": "it pays twice"})]


@pytest.mark.parametrize(
    ("version", "reason", "error"),
    [(2, "x", NotFound), (0, "x", InvalidInput), (1, " ", InvalidInput), (1, "x" * 501, InvalidInput)],
)
async def test_a_withdrawal_names_a_published_version_and_a_reason(
    database_url: str, version: int, reason: str, error: type[Exception]
) -> None:
    async with benches(database_url, 2) as opened:
        await opened[0].publish(WORK)
        with pytest.raises(error):
            await withdraw(opened[0], reason, version)


async def test_triggers_that_would_start_it_are_named_and_their_firings_refused(database_url: str) -> None:
    async with benches(database_url, 2) as opened:
        stage = Stage(opened[0])
        await stage.add(hourly(name="by-hand"))
        told = await withdraw(stage.bench)
        assert told["triggers"] == ["by-hand"]
        fired = await manage.fire_trigger(stage.firer, "by-hand", caller=BY_ANN)
        assert (fired["state"], fired["run_id"]) == ("refused", None)
        assert "withdrawn" in fired["reason"]


def forgets_the_check(patch: pytest.MonkeyPatch) -> None:
    async def allows(self: object, *given: object) -> None:
        return None

    patch.setattr(withdrawn.Withdrawals, "refuse", allows)


def never_reads_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(withdrawn, "FRESH_SECONDS", 1e9)


@pytest.mark.parametrize("plant", [forgets_the_check, never_reads_again], ids=lambda one: one.__name__)
async def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version that another process has withdrawn long ago is started."""
    plant(monkeypatch)

    async with benches(migrated_file(tmp_path / "s.db"), 2) as opened:
        one, other = opened
        now = 0.0
        other.transactor.monotonic = lambda: now
        await other.start(WORK)
        await withdraw(one)
        now = 10.0
        assert await other.start(WORK)
