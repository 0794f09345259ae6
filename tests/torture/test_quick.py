"""A few seconds of the real campaign: one storm of kills, one worker stopped past its lease, one line cut at COMMIT."""

from __future__ import annotations

import pytest

from stepkeep_lab.torture.campaign import Campaign, run_campaign
from stepkeep_lab.torture.report import page

SEED = 4


def campaign(name: str, store: str, seconds: float) -> Campaign:
    found = run_campaign(seed=SEED, seconds=seconds, only=(name,), stores=(store,))
    assert found.ok, page(found)
    [account] = found.accounts
    assert account.verdict == "passed", account.why
    for what in ("lost", "doubly committed", "stuck"):
        assert account.counts[what] == 0
    assert account.counts["acknowledged"] == account.counts["runs"]
    return found


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_storm_of_kills_loses_nothing_and_commits_nothing_twice(store: str) -> None:
    found = campaign("kill-storm", store, 3)
    assert found.total("kills") >= 3
    assert found.total("effects") >= found.total("acknowledged")


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_worker_stopped_past_its_lease_is_never_believed(store: str) -> None:
    found = campaign("stopped-past-lease", store, 1)
    assert found.total("late writes tried") >= 20
    assert found.total("late writes accepted") == 0


def test_a_line_cut_around_commit_neither_loses_nor_doubles() -> None:
    found = campaign("commit-cuts", "postgres", 3)
    assert found.total("cut before COMMIT") > 0
    assert found.total("cut after COMMIT") > 0
    assert found.total("unknown outcomes") > 0
