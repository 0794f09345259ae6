"""A search tells what it looked at, and goes on where it ended, until every run was looked at."""

from __future__ import annotations

from typing import Any

import pytest

from stepkeep.operations.runs import counting, search
from stepkeep.operations.runs.search import Terms, search_runs
from stepkeep.store.records import RunFilter, Words
from tests.workbench import TENANT, chain, on


def test_the_database_is_asked_for_words_in_lower_case_and_for_labels_as_they_are_stored() -> None:
    terms = Terms(text="Z\u00fcRICH \u00c4", error="No", labels={"b": "1", "a": 'say "x"'})
    assert terms.words == Words(text="z\u00fcrich \u00c4", error="no", labels=(b'"a":"say \\"x\\""', b'"b":"1"'))
    assert Terms(since=1, until=2).words == Words()


def test_times_and_errors_are_left_to_indexes() -> None:
    bound = Terms(since=1_700_000_000_000_000, until=1_700_000_001_000_000, error="no").bound(RunFilter(tenant=TENANT))
    assert bound == RunFilter(
        tenant=TENANT,
        oldest="018bcfe5-6800-0000-0000-000000000000",
        before="018bcfe5-6be9-0000-0000-000000000000",
        erred=True,
    )


async def test_a_search_that_ended_early_says_so_and_goes_on_until_every_run_was_looked_at(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MOST_IN_ORDER", 2)

    async with on(database_url) as bench:
        plan = await bench.publish(chain("one", 1))
        old = [await bench.start(plan, correlation_id="needle") for _ in range(2)]
        new = [await bench.start(plan) for _ in range(3)]

        async def ask(before: str | None) -> dict[str, Any]:
            return await search_runs(bench.transactor, RunFilter(tenant=TENANT, before=before), Terms(text="NEEDLE"))

        first = await ask(None)
        assert (first["runs"], first["total"], first["is_complete"]) == ([], 0, False)
        looked_at = first["looked_at"]
        assert (looked_at["runs"], looked_at["of"], looked_at["of_at_least"]) == (2, 5, False)
        assert looked_at["last"] == first["next"] == new[1]
        second = await ask(first["next"])
        assert [run["id"] for run in second["runs"]] == [old[1]]
        third = await ask(second["next"])
        assert [run["id"] for run in third["runs"]] == [old[0]]
        assert (third["is_complete"], third["next"], "looked_at" in third) == (True, None, False)
        monkeypatch.setattr(counting, "MOST", 4)
        assert (await ask(None))["looked_at"]["of_at_least"]


async def test_a_full_page_of_a_search_goes_on_behind_its_last_run(database_url: str) -> None:
    async with on(database_url) as bench:
        plan = await bench.publish(chain("one", 1))
        runs = [await bench.start(plan, correlation_id="needle") for _ in range(3)]
        which = RunFilter(tenant=TENANT, limit=2)
        page = await search_runs(bench.transactor, which, Terms(text="needle"))
        assert ([run["id"] for run in page["runs"]], page["total"]) == ([runs[2], runs[1]], 3)
        assert (page["is_complete"], page["next"]) == (True, runs[1])
        rest = await search_runs(bench.transactor, RunFilter(tenant=TENANT, before=runs[1]), Terms(text="needle"))
        assert ([run["id"] for run in rest["runs"]], rest["next"]) == ([runs[0]], None)
