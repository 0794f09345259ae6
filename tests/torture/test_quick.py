"""A short form of the real campaign: two storms of kills, a worker stopped past its lease, a line cut at COMMIT.

`stepkeep lab torture` runs every scenario on every store it is for.
"""

from __future__ import annotations

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


def test_a_storm_of_kills_loses_nothing_and_commits_nothing_twice() -> None:
    found = campaign("kill-storm", "postgres", 3)
    assert found.total("kills") >= 3
    assert found.total("effects") >= found.total("acknowledged")


def test_no_rollback_in_a_storm_of_kills_ends_partial() -> None:
    found = campaign("rollback-storm", "sqlite", 3)
    assert found.total("undos with a lost worker") > 0


def test_a_worker_stopped_past_its_lease_is_never_believed() -> None:
    found = campaign("stopped-past-lease", "sqlite", 1)
    assert found.total("late writes tried") >= 20
    assert found.total("late writes accepted") == 0


def test_a_line_cut_around_commit_neither_loses_nor_doubles() -> None:
    found = campaign("commit-cuts", "postgres", 3)
    assert found.total("cut before COMMIT") > 0
    assert found.total("cut after COMMIT") > 0
    assert found.total("unknown outcomes") > 0
