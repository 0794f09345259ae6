"""The harness can fail: what is lost, invented, late or never struck is found, and only own servers are harmed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import asyncpg
import pytest

from stepkeep.kernel.decide.decision import Claimer
from stepkeep.kernel.errors import ConnectionLost
from stepkeep.kernel.machine.states import RunState
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.definitions.publish import publish
from stepkeep.operations.pipeline import workers
from stepkeep.operations.pipeline.start import Starter
from stepkeep.store.protocol import Store
from stepkeep.worker.loop import Worker
from stepkeep_lab.postgres import DSN_VARIABLE, PostgresServer
from stepkeep_lab.torture.audit import Audit, Expected
from stepkeep_lab.torture.fleet import Fleet
from stepkeep_lab.torture.late_worker import LateTransactor
from stepkeep_lab.torture.ledger import Effect, Ledger, Tally
from stepkeep_lab.torture.points import WatchedStore
from stepkeep_lab.torture.process import ACTOR, TENANT, opened, request_for
from stepkeep_lab.torture.proxy import CUT, Cut, proxy
from stepkeep_lab.torture.servers import NotOurs, prove_ours, socket_of
from stepkeep_lab.torture.stage import Stage
from stepkeep_lab.torture.workflows import handlers, kinds

KIND = kinds()["chain"]


async def worked(transactor: LateTransactor, folder: Path) -> str:
    """One run of three effects, from its start to its end."""
    plan = await publish(transactor, KIND.definition, caller=Caller(TENANT, ACTOR))
    run_id = (await Starter(transactor).start(request_for(plan, "one"))).run_id

    async def done() -> bool:
        found = await transactor.store.read_run(TENANT, run_id)
        return found is not None and found.run.state is RunState.SUCCEEDED

    await Worker(transactor, handlers(folder)).run_until(done)
    return run_id


def audited(folder: Path, lie: Callable[[str, list[Effect]], tuple[dict[str, Expected], list[Effect], int]]) -> Audit:
    """What the audit says of an honest run when somebody lies about what was acknowledged or what happened."""

    async def scene() -> Audit:
        async with opened(f"sqlite:///{folder}/app.db", Tally(folder / "tally")) as transactor:
            run_id = await worked(transactor, folder)
            expected, effects, keys = lie(run_id, Ledger(folder / "ledger").read())
            audit = Audit(transactor, effects)
            await audit.run(expected, keys=keys)
            return audit

    return asyncio.run(scene())


def as_it_was(run_id: str) -> dict[str, Expected]:
    return {run_id: Expected(run_id, KIND.ending, KIND.effects)}


def test_an_honest_run_passes_the_audit(tmp_path: Path) -> None:
    audit = audited(tmp_path, lambda run_id, effects: (as_it_was(run_id), effects, 1))
    assert audit.findings == []
    assert (audit.counts["effects"], audit.counts["duplicate effects"]) == (3, 0)


def test_an_acknowledged_run_that_is_gone_is_found(tmp_path: Path) -> None:
    gone = "0190aaaa-0000-7000-8000-000000000000"
    audit = audited(tmp_path, lambda run_id, effects: (as_it_was(run_id) | as_it_was(gone), effects, 2))
    assert audit.counts["lost"] == 1
    assert any("gone" in finding for finding in audit.findings)
    assert any("2 keys made 1 runs" in finding for finding in audit.findings)


def test_an_outcome_without_an_effect_is_found(tmp_path: Path) -> None:
    audit = audited(tmp_path, lambda run_id, effects: (as_it_was(run_id), effects[1:], 1))
    assert any("never happened" in finding for finding in audit.findings)


def test_an_effect_without_a_claim_is_found_and_duplicates_are_counted(tmp_path: Path) -> None:
    audit = audited(tmp_path, lambda run_id, effects: (as_it_was(run_id), effects * 2, 1))
    assert audit.counts["duplicate effects"] == 3
    assert any("6 effects for 3 claims" in finding for finding in audit.findings)


def stage_in(folder: Path, seconds: float = 1, *, thorough: bool = False) -> Stage:
    return Stage(
        url="sqlite:///unused.db",
        folder=folder,
        crew=cast(Fleet, None),
        rng=random.Random(1),
        seconds=seconds,
        server=None,
        thorough=thorough,
    )


def test_a_thorough_campaign_goes_on_until_it_has_what_it_wants(tmp_path: Path) -> None:
    hurried, thorough = stage_in(tmp_path, 0), stage_in(tmp_path, 0, thorough=True)
    assert [hurried.goes_on(reached=reached) for reached in (False, True)] == [False, False]
    assert [thorough.goes_on(reached=reached) for reached in (False, True)] == [True, False]
    assert stage_in(tmp_path, 600).goes_on(reached=True), "there is time left"


def test_a_fault_that_did_not_strike_is_a_finding(tmp_path: Path) -> None:
    stage = stage_in(tmp_path)
    stage.must_have_hit("kills", at_least=2)
    assert "did not strike" in stage.findings[0]
    stage.counts["kills"] = 1
    stage.tally.add("kills")
    stage.findings.clear()
    stage.must_have_hit("kills", at_least=2)
    assert stage.findings == []


async def test_a_late_write_that_is_believed_is_counted(tmp_path: Path, database_url: str) -> None:
    """Planted: the claim is written for as if it were lost, while its lease still stands."""

    tally = Tally(tmp_path / "tally")
    async with opened(database_url, tally, zombie=True) as transactor:
        plan = await publish(transactor, kinds("60s")["chain"].definition, caller=Caller(TENANT, ACTOR))
        await Starter(transactor).start(request_for(plan, "one"))
        row = await workers.register(transactor.store, tenant=TENANT, app="late", capacity=1)
        queues = frozenset(queue for queue, _ in await transactor.store.list_queues(TENANT))
        claimer = Claimer(actor=row.id, worker=row.no, lease=None, slots=0, queues=queues)
        [claim] = await transactor.claim(claimer, limit=1)
        transactor.forget(claim)
        await asyncio.gather(*transactor._late)
    assert tally.read()["late writes accepted"] == 1
    assert tally.read()["late writes refused"] == tally.read()["late writes tried"] - 1


# -- servers -----------------------------------------------------------------------------------------------------------
async def test_only_a_server_of_our_own_is_harmed(postgres_server: PostgresServer, postgres_dsn: str) -> None:
    other = PostgresServer(environment={DSN_VARIABLE: postgres_dsn})
    other.start()
    with pytest.raises(NotOurs, match="someone else"):
        await prove_ours(other, postgres_dsn)
    with pytest.raises(NotOurs, match="does not run"):
        await prove_ours(PostgresServer(environment={}), postgres_dsn)
    if not postgres_server.is_external:
        await prove_ours(postgres_server, postgres_dsn)


async def test_an_address_that_leads_elsewhere_is_not_ours(postgres_server: PostgresServer, postgres_dsn: str) -> None:
    if postgres_server.is_external:
        pytest.skip("needs two servers of our own")
    with PostgresServer() as other, pytest.raises(NotOurs, match="another server"):
        await prove_ours(other, postgres_dsn)


# -- the line ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("cut", "kept"), [(Cut.BEFORE, 0), (Cut.AFTER, 1)])
async def test_a_cut_before_commit_leaves_nothing_and_one_after_it_leaves_everything(
    postgres_server: PostgresServer, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch, cut: Cut, kept: int
) -> None:
    if postgres_server.is_external:
        pytest.skip("the proxy stands before a server of our own")
    monkeypatch.setattr("stepkeep_lab.torture.proxy.WEIGHTS", [int(each is cut) for each in Cut])

    direct = await asyncpg.connect(postgres_dsn)
    await direct.execute("create table kept (it int)")
    cuts: Counter[str] = Counter()
    async with proxy(socket_of(postgres_dsn)[1], random.Random(1), cuts) as (line, port):
        database = postgres_dsn.split("?")[0].rsplit("/", 1)[1]
        cut_off = await asyncpg.connect(f"postgresql://postgres@127.0.0.1:{port}/{database}?sslmode=disable")
        line.rate = 1.0
        await cut_off.execute("begin")
        await cut_off.execute("insert into kept values (1)")
        with pytest.raises((asyncpg.PostgresConnectionError, ConnectionError)):
            await cut_off.execute("commit")
        assert cuts == {cut: 1, CUT: 1}
    assert await direct.fetchval("select count(*) from kept") == kept
    await direct.close()


async def test_an_unknown_outcome_is_counted_and_passed_on(tmp_path: Path) -> None:
    class Cutting:
        def change(self, *given: object) -> Awaitable[None]:
            raise ConnectionLost("cut")

    tally = Tally(tmp_path / "tally")
    watched = WatchedStore(cast(Store, Cutting()), tally)
    with pytest.raises(ConnectionLost):
        await watched.change((), lambda loaded: pytest.fail("not asked"))
    assert tally.read() == {"unknown outcomes": 1}
