"""`status`, `statistics`, `workers` and `wait`: the system in numbers, and how a run ended, by exit status."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import HANDLERS, Cli


def test_status_counts_runs_queues_and_failures_and_names_what_needs_attention(
    cli: Cli, home: Path, database_url: str
) -> None:
    db = ("--db", database_url)
    if database_url.startswith("sqlite"):
        cli("db", "migrate", *db)
    assert cli("status", *db).status == 0
    cli("run", "flow.yaml", "--app", HANDLERS, *db)
    cli("run", "failing.yaml", "--app", HANDLERS, *db)
    cli("start", "waiting.yaml", *db)
    said = cli("status", *db, "--json")
    told = said.json["status"]
    assert said.status == 0
    assert told["runs"]["live"] == {
        "total": 1,
        "is_complete": True,
        "is_estimate": False,
        "by_state": {"blocked": 1},
    }
    assert told["runs"]["recent"]["by_state"] == {"blocked": 1, "succeeded": 1, "failed": 1}
    assert told["failures"]["by_category"] == {"validation": 1}
    assert (told["queues"], told["late_timers"]["count"], told["stuck_runs"]) == ([], 0, [])
    cli("start", "flow.yaml", *db)
    said = cli("status", *db, "--json")
    assert said.status == 1
    [queue] = said.json["status"]["queues"]
    assert (queue["handler"], queue["ready"], queue["workers"], queue["code"]) == ("cli.work", 1, 0, "no_worker")
    told_in_words = cli("status", *db).out
    assert "attention: queue handler cli.work: it needs handler cli.work, and no worker is alive" in told_in_words
    assert "unfinished runs: 2 (1 queued, 1 blocked)" in told_in_words


def test_statistics_say_how_the_newest_runs_went(cli: Cli, home: Path, database_url: str) -> None:
    db = ("--db", database_url)
    cli("run", "flow.yaml", "--app", HANDLERS, *db)
    cli("run", "failing.yaml", "--app", HANDLERS, *db)
    cli("start", "flow.yaml", *db)
    first, ended, failed, ready, *steps = cli("statistics", *db).out.splitlines()
    assert first.startswith("runs since ")
    assert first.endswith(": 3 (1 queued, 1 failed, 1 succeeded)")
    assert ended.startswith("of 2 that ended, half took at most ")
    assert failed == "failed or rolled back: 1 (1 validation)"
    assert ready.startswith("ready for handler cli.work: 1, the oldest for ")
    assert steps[0].split() == ["STEP", "ATTEMPTS", "MEAN", "LONGEST", "RUN"]
    assert cli("statistics", *db, "--json").json["statistics"]["runs"]["total"] == 3


def test_wait_answers_with_the_exit_status_of_the_run(cli: Cli, home: Path) -> None:
    good = cli("run", "flow.yaml", "--app", HANDLERS, "--json").json["run"]["id"]
    bad = cli("run", "failing.yaml", "--app", HANDLERS, "--json").json["run"]["id"]
    open_run = cli("start", "waiting.yaml", "--json").json["run"]["id"]
    assert cli("wait", good).status == 0
    failed = cli("wait", bad)
    assert (failed.status, "failed: it cannot be done" in failed.out) == (1, True)
    late = cli("wait", open_run, "--timeout", "0.05")
    assert late.status == 4
    assert f"stepkeep explain {open_run}" in late.err
    assert cli("wait", open_run, "--until-blocked", "--json").json["run"]["state"] == "blocked"
    assert cli("wait", "ffff").status == 1
