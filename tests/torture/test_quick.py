"""A short form of the real campaign: a storm of kills, a worker stopped past its lease, a line cut at COMMIT.

`make test` runs these three, `make proof` every scenario on every store it is for.
"""

from __future__ import annotations

import pytest
from tests.suites import in_proof

from stepkeep_lab.torture.campaign import SCENARIOS, Campaign, run_campaign
from stepkeep_lab.torture.report import page

SEED = 4
SECONDS = 6


def campaign(name: str, store: str, seconds: float) -> Campaign:
    found = run_campaign(seed=SEED, seconds=seconds, only=(name,), stores=(store,))
    assert found.ok, page(found)
    [account] = found.accounts
    assert account.verdict == "passed", account.why
    for what in ("lost", "doubly committed", "stuck"):
        assert account.counts[what] == 0
    assert account.counts["acknowledged"] == account.counts["runs"]
    return found


@pytest.mark.parametrize("store", [in_proof("sqlite"), "postgres"])
def test_a_storm_of_kills_loses_nothing_and_commits_nothing_twice(store: str) -> None:
    found = campaign("kill-storm", store, 3)
    assert found.total("kills") >= 3
    assert found.total("effects") >= found.total("acknowledged")


@pytest.mark.parametrize("store", ["sqlite", in_proof("postgres")])
def test_no_rollback_in_a_storm_of_kills_ends_partial(store: str) -> None:
    found = campaign("rollback-storm", store, 3)
    assert found.total("undos with a lost worker") > 0


@pytest.mark.parametrize("store", ["sqlite", in_proof("postgres")])
def test_a_worker_stopped_past_its_lease_is_never_believed(store: str) -> None:
    found = campaign("stopped-past-lease", store, 1)
    assert found.total("late writes tried") >= 20
    assert found.total("late writes accepted") == 0


def test_a_line_cut_around_commit_neither_loses_nor_doubles() -> None:
    found = campaign("commit-cuts", "postgres", 3)
    assert found.total("cut before COMMIT") > 0
    assert found.total("cut after COMMIT") > 0
    assert found.total("unknown outcomes") > 0


@pytest.mark.proof
@pytest.mark.parametrize(
    ("name", "store"), [(name, store) for name, scenario in SCENARIOS.items() for store in scenario.stores]
)
def test_no_scenario_breaks_a_promise(name: str, store: str) -> None:
    found = run_campaign(seed=SEED, seconds=SECONDS, only=(name,), stores=(store,))
    [account] = found.accounts
    if account.verdict == "not run":
        pytest.skip(f"{name} on {store}: {account.why}")
    assert found.ok, page(found)
