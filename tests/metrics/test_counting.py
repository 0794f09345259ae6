"""Metrics count what was committed, once, and nothing while nobody watches."""

from __future__ import annotations

from stepkeep.kernel.definition import Definition, Retry
from stepkeep.kernel.machine.outcomes import Failed
from stepkeep.kernel.machine.states import Category
from stepkeep.metrics.exposition import Exposition
from stepkeep.operations.pipeline.expire import sweep_timers
from tests.metrics.scrape import Scrape
from tests.workbench import SECOND, benches, chain, on, task


async def scrape(exposition: Exposition) -> Scrape:
    body, media_type = await exposition.text()
    assert media_type.startswith("text/plain")
    return Scrape(body.decode())


def retried(name: str) -> Definition:
    return Definition(
        name=name, version=1, steps=(task("one", 0, [], retry=Retry(max_attempts=3)), task("two", 1, ["one"]))
    )


async def test_a_life_is_counted_once_in_our_words_and_in_the_seeds(database_url: str) -> None:
    async with on(database_url) as bench:
        exposition = Exposition(bench.transactor)
        await bench.start(retried("counted"))
        [claim] = await bench.claim()
        await bench.report(claim, Failed(category=Category.TRANSIENT, error="no"))
        bench.store.clock_offset += 100 * SECOND
        assert await sweep_timers(bench.transactor) == 1
        assert await bench.work_off() == 2
        shown = await scrape(exposition)
        assert shown("runs_total", status="PENDING") == shown("stepkeep_runs_entered_total", state="queued") == 1
        assert shown("runs_total", status="RUNNING") == shown("runs_total", status="SUCCEEDED") == 1
        assert shown("runs_total", status="FAILED") == 0
        # Two new steps, and one that is pending again after its failure; what makes a step ready is no change of word.
        assert shown("steps_total", status="PENDING") == 3
        assert shown("steps_total", status="RUNNING") == 3
        assert shown("steps_total", status="SUCCEEDED") == 2
        assert shown("step_retries_total") == 1
        assert shown("stepkeep_claims_total") == shown("stepkeep_queue_wait_seconds_count") == 3
        assert shown("stepkeep_attempts_total", state="failed", category="transient") == 1
        assert shown("stepkeep_attempts_total", state="succeeded", category="") == 2
        assert shown("step_execution_duration_seconds_count") == 3
        assert shown("worker_claim_latency_seconds_count") >= 3
        assert shown("stepkeep_fenced_writes_total") == 0
        decisions = sum(value for (name, _), value in shown.samples.items() if name == "stepkeep_decisions_total")
        commits = sum(value for (name, _), value in shown.samples.items() if name == "stepkeep_commit_seconds_count")
        assert decisions == commits == shown("stepkeep_batch_runs_count")


async def test_a_report_without_its_lease_is_counted_as_fenced(database_url: str) -> None:
    async with on(database_url) as bench:
        exposition = Exposition(bench.transactor)
        await bench.start(chain("fenced", 1))
        [late] = await bench.claim(lease=SECOND)
        bench.store.clock_offset += 100 * SECOND
        await sweep_timers(bench.transactor)
        [again] = await bench.claim()
        await bench.report(late)
        await bench.report(again)
        shown = await scrape(exposition)
        assert shown("stepkeep_fenced_writes_total") == 1
        assert shown("stepkeep_attempts_total", state="lost", category="") == 1
        assert shown("step_retries_total") == 0
        assert shown("steps_total", status="SUCCEEDED") == 1


async def test_nothing_but_decisions_is_counted_while_nobody_watches(database_url: str) -> None:
    async with on(database_url) as bench:
        await bench.start(chain("unwatched", 2))
        await bench.work_off()
        measures = bench.transactor.measures
        assert sum(measures.commits.values()) >= 3
        assert not measures.runs
        assert not measures.steps
        assert not measures.claims


async def test_conflicts_and_fallbacks_are_counted_by_basis(postgres_dsn: str) -> None:
    async with benches(postgres_dsn, 2) as (first, second):
        shows = Exposition(first.transactor)
        await first.start(chain("contended", 1))
        find = first.store.find_claimable

        async def overtaken(*given: object) -> object:
            found = await find(*given)  # type: ignore[arg-type]
            await second.claim()
            return found

        first.store.find_claimable = overtaken  # type: ignore[method-assign, assignment]
        assert await first.claim() == []
        shown = await scrape(shows)
        assert shown("stepkeep_conflicts_total", basis="read") == shown("stepkeep_fallbacks_total", basis="read") == 1
