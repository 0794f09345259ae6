"""`stepkeep migrate`, and `stepkeep decide` about a step that is stuck."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Cli

FLOW = """workflow: asked
version: {version}
steps:
  - name: ask
    approval: {{}}
  - name: tell
    uses: tell
    depends_on: [ask]
{more}"""
MORE = "  - {name: more, uses: more, depends_on: [tell]}\n"


def test_a_live_run_is_migrated_after_a_look(cli: Cli, home: Path) -> None:
    (home / "one.yaml").write_text(FLOW.format(version=1, more=""))
    (home / "two.yaml").write_text(FLOW.format(version=2, more=MORE))
    run = cli("start", "one.yaml", "--handlers-elsewhere", "--json").json["run"]["id"]
    assert cli("publish", "two.yaml", "--handlers-elsewhere").status == 0
    looked = cli("migrate", run, "--to", "2", "--dry-run")
    assert (looked.status, "can go on under version 2" in looked.out, "added: more" in looked.out) == (0, True, True)
    all_of = cli("migrate", "--all", "asked", "--to", "2", "--dry-run")
    assert "1 of 1 live runs could go on under version 2" in all_of.out
    assert f"Do it: stepkeep migrate {run} --to 2\n" in looked.out
    assert (
        "Do it: stepkeep migrate --all asked --of 1 --to 2 --reason 'more is told'\n"
        in cli("migrate", "--all", "asked", "--to", "2", "--of", "1", "--reason", "more is told", "--dry-run").out
    )
    done = cli("migrate", run, "--to", "2", "--reason", "more is told", "--json").json["migration"]
    assert (done["run_id"], done["version"], done["created"]) == (run, 2, True)
    assert cli("show", run, "--json").json["run"]["continued_by"] == [done["new_run_id"]]
    again = cli("migrate", run, "--to", "2")
    assert (again.status, "it was migrated before" in again.out) == (0, True)
    file = f"sqlite:///{home / '.stepkeep' / 'stepkeep.db'}"
    assert (
        f"look at it with: stepkeep show {done['new_run_id']} --db {file}"
        in cli("migrate", run, "--to", "2", "--db", file).out
    )
    all_done = cli("migrate", "--all", "asked", "--to", "2")
    assert ("migrates 0 live runs to version 2" in all_done.out, "stepkeep jobs show" in all_done.out) == (True, True)


def test_a_run_that_stays_is_told_with_its_reasons(cli: Cli, home: Path) -> None:
    (home / "one.yaml").write_text(FLOW.format(version=1, more=""))
    (home / "two.yaml").write_text(FLOW.format(version=2, more=MORE))
    run = cli("start", "one.yaml", "--handlers-elsewhere", "--json").json["run"]["id"]
    assert cli("publish", "two.yaml", "--handlers-elsewhere").status == 0
    assert cli("send", run, "note").status == 0
    looked = cli("migrate", run, "--to", "2", "--dry-run")
    assert (looked.status, "1 of its messages" in looked.out, "Do it" in looked.out) == (1, True, False)
    refused = cli("migrate", run, "--to", "2", "--json")
    assert (refused.status, refused.json["error"]["code"]) == (1, "conflict")
    looked_at = cli("migrate", "--all", "asked", "--to", "2", "--dry-run")
    assert (looked_at.status, "0 of 1 live runs could go on" in looked_at.out) == (1, True)
    job = cli("migrate", "--all", "asked", "--to", "2", "--reason", "v2", "--json").json["migration"]
    assert (job["action"], job["runs"], job["waiting"], job["reason"]) == ("migrate", 1, 1, "v2")
    assert cli("migrate", "--to", "2").status == 2
    assert cli("migrate", run, "--to", "2", "--of", "1").status == 2


def test_a_step_that_no_worker_takes_is_skipped_with_a_reason(cli: Cli, home: Path) -> None:
    (home / "one.yaml").write_text("workflow: parked\nsteps:\n  - {name: one, uses: nobody.has}\n")
    run = cli("start", "one.yaml", "--handlers-elsewhere", "--json").json["run"]["id"]
    assert cli("decide", run, "one", "skip").status != 0
    said = cli("decide", run, "one", "skip", "--reason", "nobody has the code", "--by", "ann", "--json").json
    assert (said["decision"]["decision"], said["run"]["state"]) == ("skipped", "succeeded")
    late = cli("decide", run, "one", "complete", "--output", "1", "--reason", "x", "--json")
    assert late.json["error"]["code"] == "conflict"


def test_two_attempts_are_compared_or_the_refusal_says_what_there_is(cli: Cli, home: Path) -> None:
    (home / "one.yaml").write_text("workflow: parked\nsteps:\n  - {name: one, uses: nobody.has}\n")
    run = cli("start", "one.yaml", "--handlers-elsewhere", "--json").json["run"]["id"]
    said = cli("diff", run, "--step", "one", "--json")
    assert (said.status, "has 0 attempts" in said.json["error"]["message"]) == (2, True)
    assert cli("diff", run).status == 2
    assert cli("diff", run, "--step", "other").status == 1
