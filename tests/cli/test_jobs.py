"""`stepkeep jobs`: a dry run, a job that a worker carries out, what became of each run, and a stop."""

from __future__ import annotations

import stepkeep as sk
from stepkeep.worker.settings import Settings
from tests.cli.conftest import Cli
from tests.suites import first_on
from tests.workbench import wait_until

GATED = sk.Workflow("cli-gated")
GATED.approval("sign")


def test_a_worker_looks_for_jobs() -> None:
    assert Settings().jobs_seconds > 0


@first_on("sqlite")
def test_many_runs_are_cancelled_and_each_is_told_of(database_url: str, cli: Cli) -> None:
    db = ("--db", database_url)
    with sk.open(database_url) as engine:
        runs = sorted(engine.start(GATED, labels={"batch": "7"}).run_id for _ in range(3))
        engine.reject(runs[0])
        looked = cli("jobs", "start", "cancel", "--label", "batch=7", "--dry-run", *db)
        assert looked.out.splitlines() == ["cancel would be done to 2 runs", f"  {runs[1]}", f"  {runs[2]}"]
        assert "there are no jobs" in cli("jobs", "list", *db).out
        named = [part for run in runs for part in ("--run", run)]
        made = cli("jobs", "start", "cancel", *named, "--reason", "a mistake", "--json", *db)
        job = made.json["job"]["job"]
        with engine.start_worker():
            for run in runs[1:]:
                assert engine.wait(run, seconds=30).state is sk.RunState.CANCELLED
            wait_until(lambda: engine.jobs.show(job)["state"] == "done")
        shown = cli("jobs", "show", job, *db)
        assert shown.status == 1, "one was refused"
        assert f"{runs[0]}  refused" in shown.out
        assert f"{runs[2]}  done" in shown.out
        assert cli("jobs", "show", job, "--json", *db).json["job"]["state"] == "done"
        rerun = cli("jobs", "start", "rerun", "--run", runs[0], "--json", *db).json["job"]["job"]
        assert "1 runs are left as they are" in cli("jobs", "stop", rerun, *db).out
        assert cli("jobs", "stop", rerun, *db).status == 1
        listed = cli("jobs", "list", "--json", *db).json["jobs"]
        assert [(one["action"], one["state"]) for one in listed] == [("rerun", "stopped"), ("cancel", "done")]
    assert cli("jobs", "start", "cancel", *db).status == 2
