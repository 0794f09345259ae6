"""The smallest work of each kind, done for real on both databases; nothing here says how fast it must be."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from tests.suites import in_proof, short_and_all

from stepkeep.kernel.errors import InvalidInput
from stepkeep_lab.bench import backlog, bound, cancelling, idle, judging, latency, pages, throughput
from stepkeep_lab.bench.campaign import Ask, Campaign, Turn, chosen, run_campaign
from stepkeep_lab.bench.ground import STORES, Ground, fresh_ground
from stepkeep_lab.bench.machine import DURABLE, server_facts
from stepkeep_lab.bench.measurement import FIGURES, PAGES, Figures
from stepkeep_lab.bench.works import WORKS
from stepkeep_lab.postgres import PostgresServer

PARTIES = {"worker_us", "client_us", "all_us"}


@pytest.fixture(params=short_and_all(["sqlite"], STORES))
def ground(request: pytest.FixtureRequest) -> Iterator[Ground]:
    server = request.getfixturevalue("postgres_server") if request.param == "postgres" else None
    with fresh_ground(request.param, server) as made:
        yield made


@pytest.fixture
def on_a_server(postgres_server: PostgresServer) -> Iterator[Ground]:
    with fresh_ground("postgres", postgres_server) as made:
        yield made


def sound(figures: Figures) -> set[str]:
    """The names of what was measured, each of which must be known and no less than nothing."""
    assert all(name in FIGURES and value >= 0.0 for name, value in figures.items()), figures
    return set(figures)


async def test_runs_are_done_counted_and_verified_and_everybody_pays(ground: Ground) -> None:
    figures = await throughput.runs_of_steps(ground, steps=2, runs=7)
    assert sound(figures) >= {"steps_per_second", "runs_per_second", "starts_per_second", "worker_mb"} | PARTIES
    assert figures["steps_per_second"] == pytest.approx(2 * figures["runs_per_second"])
    assert ("wal_bytes" in figures) == (ground.server is not None)


@pytest.mark.proof
async def test_a_fan_is_joined(ground: Ground) -> None:
    assert "steps_per_second" in sound(await throughput.fan_out(ground, steps=5, runs=2))


@pytest.mark.proof
async def test_the_elements_of_a_map_are_counted_as_steps(ground: Ground) -> None:
    figures = await throughput.elements(ground, steps=5, runs=2)
    assert figures["steps_per_second"] == pytest.approx(5 * figures["runs_per_second"])


@pytest.mark.proof
async def test_the_calls_of_a_flow_are_measured_after_the_same_steps_as_a_plan(ground: Ground) -> None:
    figures = await throughput.calls_of_a_flow(ground, runs=2)
    wanted = {"steps_per_second", "plan_steps_per_second", "plan_all_us", "delivered_steps_per_second"}
    assert sound(figures) >= wanted | PARTIES
    assert figures["steps_per_second"] == pytest.approx(10 * figures["runs_per_second"])


async def test_runs_under_slots_are_measured_after_those_without(ground: Ground) -> None:
    figures = await throughput.under_slots(ground, steps=1, runs=2)
    assert sound(figures) >= {"steps_per_second", "plan_steps_per_second", "plan_all_us"} | PARTIES


async def test_starts_need_no_worker(ground: Ground) -> None:
    assert "starts_per_second" in sound(await throughput.starts(ground, runs=5))


async def test_one_run_is_watched_from_end_to_end(ground: Ground) -> None:
    figures = await latency.one_run(ground, steps=1, probes=3)
    assert sound(figures) == {"p50_ms", "p99_ms"}
    assert 0.0 < figures["p50_ms"] <= figures["p99_ms"]


@pytest.mark.proof
async def test_load_is_kept_up_beside_the_run_that_is_watched(ground: Ground) -> None:
    figures = await latency.under_load(ground, steps=1, rate=20, seconds=0.5)
    assert sound(figures) == {"p50_ms", "p99_ms", "runs_per_second"}


async def test_a_backlog_of_copies_can_be_claimed_and_given_back(ground: Ground) -> None:
    figures = await backlog.claims(ground, ready=250, finished=30, probes=2)
    assert sound(figures) == {"claim_ms", "claim_cpu_ms"}


async def test_the_status_is_measured_beside_many_runs(ground: Ground) -> None:
    figures = await backlog.status(ground, ready=120, finished=80, probes=2)
    assert sound(figures) == {"p50_ms", "p99_ms"}


async def test_every_page_is_opened_beside_many_runs(ground: Ground) -> None:
    figures = await pages.first_answers(ground, runs=200, probes=1)
    assert sound(figures) == {f"page_{name}_ms" for name in PAGES}


@pytest.mark.proof
async def test_a_worker_works_on_a_backlog_of_copies(ground: Ground) -> None:
    assert (await backlog.memory(ground, ready=120, seconds=0.5))["worker_mb"] > 1.0


async def test_the_judge_is_measured_on_real_runs(ground: Ground) -> None:
    for dialect in (None, "workstream"):
        figures = await judging.verify(ground, lines=60, runs=2, steps=2, dialect=dialect)
        assert sound(figures) >= {"lines_per_second", "line_us", "seconds"}
    figures = await judging.certify(ground, certificates=3, runs=2, steps=1)
    assert sound(figures) >= {"certificates_per_second", "p50_ms", "p99_ms"}


@pytest.mark.proof
async def test_an_idle_worker_is_counted_by_what_it_asks(on_a_server: Ground) -> None:
    figures = await idle.idle_worker(on_a_server, seconds=1.0, settle=0.2)
    assert sound(figures) == {"statements_per_second", "worker_cpu_percent", "server_cpu_percent", "worker_mb"}


@pytest.mark.proof
async def test_round_trips_are_those_that_the_server_saw(on_a_server: Ground) -> None:
    assert (await idle.round_trips(on_a_server, steps=1, runs=20))["round_trips"] > 0.0


async def test_the_bound_writes_what_the_engine_writes(on_a_server: Ground) -> None:
    figures = await bound.inside_the_server(on_a_server, steps=2, runs=bound.BATCH)
    assert sound(figures) == {"steps_per_second", "runs_per_second", "server_us"}


@pytest.mark.proof
async def test_a_worker_without_notifications_finds_its_work(on_a_server: Ground) -> None:
    assert "all_us" in sound(await throughput.without_notifications(on_a_server, steps=1, runs=5))


async def test_the_server_that_is_measured_is_durable() -> None:
    with PostgresServer() as server:
        facts = await server_facts(server)
    assert {name: facts[name] for name in DURABLE} == dict.fromkeys(DURABLE, "on")


@pytest.mark.proof
def test_every_round_is_told_and_kept() -> None:
    told: list[Turn] = []
    kept: list[Campaign] = []
    ask = Ask(only=("1-step runs",), stores=("sqlite",), rounds=2, runs=3)
    found = run_campaign(ask, told.append, kept.append)
    assert [len(each.measurements[0].rounds) for each in kept] == [1, 2]
    assert [(turn.work, turn.number) for turn in told] == [("1-step runs", 1), ("1-step runs", 2)]
    assert found.ok
    assert len(found.measurements[0].rounds) == 2


@pytest.mark.parametrize("ask", [Ask(only=("4-step runs",)), Ask(stores=("mysql",))])
def test_a_name_that_does_not_exist_is_a_refusal(ask: Ask) -> None:
    with pytest.raises(InvalidInput, match="Choose from"):
        chosen(ask)


def test_names_of_works_are_unique_and_every_work_says_what_it_does() -> None:
    assert len({work.name for work in WORKS}) == len(WORKS)
    assert all(work.what.endswith((".", ":")) for work in WORKS)


def test_a_quick_campaign_has_both_databases_starts_latency_and_idleness() -> None:
    names = {work.name for work in chosen(Ask(quick=True))}
    assert {"3-step runs", "starts", "one 3-step run, idle", "idle worker"} <= names


def test_rounds_cut_short_unless_a_work_is_asked_for_by_name() -> None:
    assert [Ask(rounds=2).rounds_of(usual) for usual in (1, 2, 3)] == [1, 2, 2]
    assert [Ask(rounds=5, only=("starts",)).rounds_of(usual) for usual in (1, 3)] == [5, 5]
    assert Ask(quick=True, rounds=5).rounds_of(3) == 1
    assert Ask().rounds_of(3) == 3


@pytest.mark.parametrize(
    "measure", [cancelling.after_cancel, in_proof(cancelling.after_failure), in_proof(cancelling.after_timeout)]
)
@pytest.mark.proof
async def test_the_end_of_a_handler_in_another_process_is_timed(
    ground: Ground, measure: Callable[..., Coroutine[Any, Any, Figures]]
) -> None:
    assert sound(await measure(ground, probes=1)) == {"p50_ms", "p99_ms"}
