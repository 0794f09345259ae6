"""Everything one does to a run from a shell: start it, watch it, decide, look at it, run it again."""

from __future__ import annotations

import getpass
import json
import os
import re
import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import HANDLERS, Cli


def test_run_executes_here_and_tells_each_step(cli: Cli) -> None:
    said = cli("run", "flow.yaml", "--app", HANDLERS)
    assert said.status == 0
    assert re.search(r"^\d\d:\d\d:\d\d\.\d{3}  first  running$", said.out, re.MULTILINE)
    assert re.search(r"second  succeeded in \d+ms", said.out)
    assert '"did": "second"' in said.out


def test_run_with_json_answers_one_object_whatever_handlers_print(cli: Cli) -> None:
    said = cli("run", "flow.yaml", "--app", HANDLERS, "--json")
    assert said.status == 0
    run = said.json["run"]
    assert (run["workflow"], run["version"], run["dialect"], run["state"]) == ("flow", 1, "native", "succeeded")
    assert (run["rollback"], run["error"], run["output"]) == ("none", None, {"did": "second"})
    assert [(step["name"], step["state"], step["attempts"]) for step in said.json["steps"]] == [
        ("first", "succeeded", 1),
        ("second", "succeeded", 1),
    ]
    assert "a handler prints this" in said.err


@pytest.mark.parametrize(
    ("file", "status", "state"),
    [("flow", 0, "succeeded"), ("failing", 1, "failed"), ("undone", 3, "rolled_back"), ("gated", 4, "blocked")],
)
def test_the_exit_status_says_how_the_run_stands(cli: Cli, file: str, status: int, state: str) -> None:
    said = cli("run", f"{file}.yaml", "--app", HANDLERS, "--json")
    assert (said.status, said.json["run"]["state"]) == (status, state)


def test_a_failed_run_says_why(cli: Cli) -> None:
    said = cli("run", "failing.yaml", "--app", HANDLERS)
    assert "refuse  failed" in said.out
    assert "validation: it cannot be done" in said.out


def test_a_cancelled_run_is_neither_a_success_nor_a_failure(cli: Cli) -> None:
    run = cli("run", "gated.yaml", "--app", HANDLERS, "--json").json["run"]["id"]
    said = cli("cancel", run, "--reason", "no longer needed", "--json")
    assert (said.status, said.json["run"]["state"]) == (0, "cancelled")
    assert cli("run", "--resume", run, "--app", HANDLERS).status == 3
    assert "(as before)" in cli("cancel", run).out


def test_cancel_with_compensate_undoes_what_was_done(cli: Cli, home: Path) -> None:
    gated = home / "gated.yaml"
    gated.write_text(gated.read_text().replace("{name: draft,", "{name: draft, undo: cli.undo,"))
    run = cli("run", "gated.yaml", "--app", HANDLERS, "--json").json["run"]["id"]
    assert cli("cancel", run, "--compensate").status == 0
    said = cli("run", "--resume", run, "--app", HANDLERS, "--json")
    assert (said.status, said.json["run"]["state"]) == (3, "rolled_back")


def test_a_blocked_run_says_what_to_type_and_that_works(cli: Cli) -> None:
    blocked = cli("run", "gated.yaml", "--app", HANDLERS)
    assert blocked.status == 4
    [approve] = re.findall(r"^  stepkeep (approve \S+ sign-off)$", blocked.out, re.MULTILINE)
    [resume] = re.findall(r"stepkeep (run --resume .*)$", blocked.err, re.MULTILINE)
    said = cli(*approve.split(), "--comment", "looks fine")
    assert said.status == 0
    assert f"sign-off approved by {getpass.getuser()}" in said.out
    assert "(as before)" in cli(*approve.split()).out
    resumed = cli(*resume.split())
    assert resumed.status == 0
    assert "draft  running" not in resumed.out
    assert "publish  succeeded" in resumed.out
    run = approve.split()[1]
    assert f"approved by {getpass.getuser()}: looks fine" in cli("show", run).out


def test_a_gate_that_was_approved_cannot_be_rejected(cli: Cli) -> None:
    run = cli("run", "gated.yaml", "--app", HANDLERS, "--json").json["run"]["id"]
    cli("approve", run, "sign-off")
    said = cli("reject", run, "sign-off", "--json")
    assert said.status == 1
    assert said.json["error"]["code"] == "conflict"
    assert said.json["error"]["winner"]["decision"] == "approved"


def test_the_record_names_the_person_that_the_operator_names(cli: Cli) -> None:
    run = cli("start", "gated.yaml", "--app", HANDLERS, "--by", "ada", "--json").json["run"]["id"]
    cli("run", "--resume", run, "--app", HANDLERS)
    assert "approved by bea" in cli("approve", run, "sign-off", "--by", "bea").out
    cli("run", "--resume", run, "--app", HANDLERS)
    again = cli("rerun", run, "--no-wait", "--by", "cy", "--json").json["run"]["id"]
    cli("run", "--resume", again, "--app", HANDLERS)
    assert cli("reject", again, "--by", "di", "--json").json["decision"]["by"] == "di"
    by_hand = cli("run", "manual.yaml", "--app", HANDLERS, "--json").json["run"]
    token = by_hand["waiting_for"][0]["token"]
    completed = cli("complete", by_hand["id"], "by-hand", "--token", token, "--by", "ed", "--json")
    assert completed.json["decision"]["by"] == "ed"
    waiting = cli("start", "waiting.yaml", "--idle", "--json").json["run"]["id"]
    cli("start", "--run", waiting, "--by", "flo")
    cli("send", waiting, "other", "--by", "gus")
    cli("cancel", waiting, "--by", "hal")
    log = cli("log", "export", waiting).out
    assert all(name in log for name in ("flo", "gus", "hal"))
    assert cli("show", run, "--json").json["run"]["created_by"] == "ada"
    assert cli("show", again, "--json").json["run"]["created_by"] == "cy"
    refused = cli("cancel", again, "--by", "")
    assert (refused.status, "by: String should have at least 1 character" in refused.err) == (2, True)


def test_changes_are_requested_and_a_run_is_annotated_escalated_and_frozen(cli: Cli) -> None:
    run = cli("run", "gated.yaml", "--app", HANDLERS, "--json").json["run"]["id"]
    said = cli("request-changes", run, "--comment", "name the supplier", "--by", "bea")
    assert "sign-off changes_requested by bea" in said.out
    assert "changes requested by bea" in cli("approvals").out
    assert cli("request-changes", run, "--comment", " ").status == 2
    note = cli("annotate", run, "the bank has a holiday", "--step", "sign-off")
    assert "a note about sign-off" in note.out
    assert cli("annotate", run, "again", "--json").json["decision"]["note"] == "again"
    refused = cli("escalate", run, "--reason", "bea is away", "--json")
    assert (refused.status, refused.json["error"]["code"]) == (1, "conflict")
    assert "Go on: stepkeep resume" in cli("freeze", run, "--reason", "an audit").out
    assert cli("freeze", run, "--reason", "an audit", "--json").json["error"]["code"] == "conflict"
    assert cli("resume", run).status == 0
    log = cli("log", "export", run).out
    assert all(word in log for word in ("changes_requested", "annotated", '"freeze":true'))
    assert cli("approve", run, "--by", "bea").status == 0


def test_a_rejected_run_fails(cli: Cli) -> None:
    run = cli("run", "gated.yaml", "--app", HANDLERS, "--json").json["run"]["id"]
    assert cli("reject", run, "--comment", "not like this").status == 0
    said = cli("run", "--resume", run, "--app", HANDLERS)
    assert said.status == 1
    assert "not like this" in said.out


def test_a_completion_token_is_shown_with_the_command_that_uses_it(cli: Cli) -> None:
    blocked = cli("run", "manual.yaml", "--app", HANDLERS)
    assert blocked.status == 4
    [complete] = re.findall(r"^  stepkeep (complete .*)$", blocked.out, re.MULTILINE)
    words = complete.split()
    wrong = [word if word != words[4] else "guessed" for word in words]
    assert cli(*wrong).status == 1
    said = cli(*words, "--output", '{"by": "hand"}', "--notes", "done", "--evidence", "photo-1", "--json")
    assert said.status == 0
    assert said.json["decision"]["outcome"] == "Succeeded"
    assert said.json["decision"]["evidence"] == ["photo-1"]
    assert said.json["run"]["state"] == "succeeded"


def test_a_token_is_part_of_the_json_of_the_process_that_issued_it(cli: Cli) -> None:
    run = cli("run", "manual.yaml", "--app", HANDLERS, "--json").json["run"]
    [wait] = run["waiting_for"]
    assert cli("complete", run["id"], wait["step"], "--token", wait["token"], "--outcome", "Failed").status == 0
    assert cli("show", run["id"], "--json").json["run"]["state"] == "failed"


def test_a_signal_of_seed_003_completes_a_step_and_its_claims_are_kept(cli: Cli, tmp_path: Path) -> None:
    """003 §3.3: the payload as a file; the actor comes from this process, and what the payload says is a claim."""
    run = cli("run", "manual.yaml", "--app", HANDLERS, "--json").json["run"]
    [wait] = run["waiting_for"]
    claim = {"actorUserId": "dora", "completedAtIso": "2026-01-31T09:30:00Z"}
    signal = {
        "schemaVersion": 1,
        "runId": run["id"],
        "actionId": wait["step"],
        "completionToken": wait["token"],
        "outcome": "Succeeded",
        "notes": "by phone",
        "evidenceRefs": ["call-7"],
    }
    file = tmp_path / "signal.json"
    file.write_text(json.dumps(signal), encoding="utf-8")
    assert "`actorUserId` is missing" in cli("complete", "--signal", str(file)).err
    file.write_text("{", encoding="utf-8")
    assert "is not JSON" in cli("complete", "--signal", str(file)).err
    file.write_text(json.dumps(signal | claim), encoding="utf-8")
    assert "leave out RUN" in cli("complete", run["id"], wait["step"], "--signal", str(file)).err
    assert "Name the run and the step" in cli("complete").err
    said = cli("complete", "--signal", str(file), "--by", "bea", "--json").json
    assert (said["decision"]["by"], said["decision"]["claim"]) == ("bea", claim)
    assert (said["decision"]["evidence"], said["run"]["state"]) == (["call-7"], "succeeded")
    for again in (f"@{file}", file.read_text()):
        assert cli("complete", "--signal", again, "--by", "bea", "--json").json["decision"]["repeated"] is True


def test_the_token_of_a_signal_goes_before_the_one_of_the_environment(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = cli("run", "manual.yaml", "--app", HANDLERS, "--json").json["run"]
    [wait] = run["waiting_for"]
    signal = {
        "schemaVersion": 1,
        "runId": run["id"],
        "actionId": wait["step"],
        "completionToken": wait["token"],
        "outcome": "Succeeded",
        "actorUserId": "dora",
        "completedAtIso": "2026-01-31T09:30:00Z",
    }
    file = tmp_path / "signal.json"
    file.write_text(json.dumps(signal), encoding="utf-8")
    monkeypatch.setenv("STEPKEEP_TOKEN", "of another step")
    assert "leave out RUN" in cli("complete", "--signal", str(file), "--token", "mine").err
    assert cli("complete", "--signal", str(file), "--json").json["run"]["state"] == "succeeded"


def test_a_message_ends_a_wait(cli: Cli) -> None:
    blocked = cli("run", "waiting.yaml")
    assert blocked.status == 4
    [send] = re.findall(r"^  stepkeep (send \S+ paid) ", blocked.out, re.MULTILINE)
    said = cli(*send.split(), "--payload", '{"amount": 7}', "--id", "m-1")
    assert said.status == 0
    assert cli("show", send.split()[1], "--json").json["run"]["output"] == {"amount": 7}


def test_start_leaves_the_work_to_workers_and_a_key_makes_one_run(cli: Cli) -> None:
    same = ["start", "flow.yaml", "--idempotency-key", "k-1", "--input", '{"n": 1}', "--business-key", "b-1", "--json"]
    one = cli(*same)
    again = cli(*same)
    other = cli("start", "flow.yaml", "--idempotency-key", "k-1", "--input", '{"n": 2}', "--json")
    assert (one.status, one.json["created"], one.json["run"]["state"]) == (0, True, "queued")
    assert (again.status, again.json["created"]) == (0, False)
    assert again.json["run"]["id"] == one.json["run"]["id"]
    assert (other.status, other.json["error"]["code"]) == (1, "key_reused")
    earlier = {"run_id": one.json["run"]["id"], "differs": ["input", "business key"]}
    assert other.json["error"]["earlier"] == earlier
    busy = cli("start", "flow.yaml", "--business-key", "b-1", "--json")
    assert (busy.status, busy.json["error"]["winner"]["run_id"]) == (1, one.json["run"]["id"])


def test_start_by_name_idle_and_later(cli: Cli) -> None:
    cli("start", "flow.yaml")
    idle = cli("start", "flow", "--idle", "--priority", "5", "--correlation-id", "c-9", "--json").json["run"]
    assert (idle["state"], idle["priority"], idle["correlation_id"]) == ("idle", 5, "c-9")
    assert "start --run" in cli("show", idle["id"]).out
    assert cli("start", "--run", idle["id"], "--json").json["run"]["state"] == "queued"
    assert cli("start", "flow", "--version", "7").status == 1
    assert cli("start", "nothing-like-it").status == 1


def test_a_gate_shows_its_question_and_whom_it_asks(cli: Cli, home: Path) -> None:
    gated = home / "gated.yaml"
    gated.write_text(
        gated.read_text().replace("{deadline: 1h}", "{prompt: Is it fit to print?, roles: [editors, law]}")
    )
    run = cli("run", "gated.yaml", "--app", HANDLERS).out
    asked = r"sign-off waits for approval by editors or law \(until \S+\):\n  Is it fit to print\?\n  stepkeep approve "
    assert re.search(asked, run), "it waits until the timeout of the run"


def test_send_says_what_became_of_the_message(cli: Cli) -> None:
    run = cli("run", "waiting.yaml", "--json").json["run"]["id"]
    assert cli("send", run, "payed").out == f"payed is kept: no step waits for it yet; run {run} is blocked\n"
    assert cli("send", run, "paid", "--id", "m1").out == f"paid went to payment; run {run} has succeeded\n"
    assert "was sent before as m1, and nothing changed" in cli("send", run, "paid", "--id", "m1").out
    assert "payment  succeeded" in (shown := cli("show", run).out)
    assert "event paid" in shown
    assert "None" not in shown


def test_no_wait_is_not_finished(cli: Cli) -> None:
    said = cli("run", "flow.yaml", "--no-wait", "--json")
    assert (said.status, said.json["run"]["state"]) == (4, "queued")


def test_rerun_is_a_new_run_that_names_the_old_one(cli: Cli) -> None:
    old = cli("run", "flow.yaml", "--app", HANDLERS, "--input", '{"n": 1}', "--json").json["run"]["id"]
    new = cli("rerun", old, "--app", HANDLERS, "--json")
    assert (new.status, new.json["run"]["rerun_of"], new.json["run"]["input"]) == (0, old, {"n": 1})
    other = cli("rerun", old, "--no-wait", "--input", '{"n": 2}', "--json")
    assert (other.status, other.json["run"]["input"]) == (4, {"n": 2})
    assert cli("rerun", other.json["run"]["id"], "--no-wait").status == 1


def test_a_failed_run_is_retried_and_a_finished_one_forked(cli: Cli) -> None:
    failed = cli("run", "flow.yaml", "--no-wait", "--input", '{"n": 1}', "--json").json["run"]["id"]
    cli("cancel", failed)
    looked = cli("retry", failed, "--dry-run")
    assert looked.status == 0
    assert "runs again: it did not finish" in looked.out
    assert f"Do it: stepkeep retry {failed}" in looked.out
    again = cli("retry", failed, "--app", HANDLERS, "--json")
    assert (again.status, again.json["run"]["rerun_of"]) == (0, failed)
    done, [first, *others] = again.json["run"]["id"], [step["name"] for step in again.json["steps"]]
    for command in ("show", "explain"):
        assert f"retry of run {failed}" in cli(command, done).out
        assert f"repeated or continued by run {done}" in cli(command, failed).out
    refused = cli("retry", done)
    assert refused.status == 1
    assert "has succeeded" in refused.err
    found = cli("fork", done, "--from", first, "--dry-run", "--json").json["continuation"]
    assert (found["as"], found["from"], first in found["runs_again"]) == ("fork", first, True)
    assert cli("fork", done, "--from", first, "--no-wait", "--json").status == 4
    forked = cli("fork", done, "--from", others[-1], "--no-wait", "--json").json
    assert forked["run"]["continues"]["as"] == "fork"
    shown = cli("show", forked["run"]["id"]).out
    assert f"fork of run {done} at {others[-1]}; adopted: {first}" in shown
    assert f"adopted from run {done}" in shown
    assert f"adopted from step {first} of run {done}" in cli("show", forked["run"]["id"], "--step", first).out
    assert f"run {done} executed it" in cli("explain", forked["run"]["id"], first).out
    assert cli("rerun", done, "--from", first, "--app", HANDLERS, "--json").status == 0
    assert cli("rerun", done, "--dry-run").status == 2
    assert "--version goes with --from" in cli("rerun", done, "--version", "1").err


def test_a_preview_prints_the_command_that_does_what_was_previewed(cli: Cli) -> None:
    done = cli("run", "flow.yaml", "--app", HANDLERS, "--input", '{"n": 1}', "--json").json
    run, first = done["run"]["id"], done["steps"][0]["name"]
    asked = ["--input", '{"n": 2}', "--idempotency-key", "k 1", "--by", "ada"]
    for how, option, version in (("fork", "--from", ["--version", "1"]), ("rerun", "--from", ["--version", "1"])):
        looked = cli(how, run, option, first, *asked[:2], *version, *asked[2:], "--dry-run").out
        [command] = [line.removeprefix("Do it: ") for line in looked.splitlines() if line.startswith("Do it: ")]
        words = ["stepkeep", how, run, option, first, *asked[:2], *version, *asked[2:]]
        assert shlex.split(command) == words
    made = cli(*shlex.split(command)[1:], "--no-wait", "--json").json["run"]
    assert (made["input"], made["created_by"]) == ({"n": 2}, "ada")


def test_runs_are_listed_filtered_and_paged(cli: Cli) -> None:
    assert "there is no database sqlite:///.stepkeep/stepkeep.db" in cli("runs").err
    cli("db", "migrate")
    assert cli("runs").out == "no runs in sqlite:///.stepkeep/stepkeep.db\n"
    assert cli("runs", "--state", "failed").out == "no such runs in sqlite:///.stepkeep/stepkeep.db\n"
    assert cli("runs", "--json").json == {"runs": [], "total": 0, "is_complete": True, "next": None}
    for file in ("flow", "failing", "flow"):
        cli("run", f"{file}.yaml", "--app", HANDLERS)
    everything = cli("runs", "--json").json["runs"]
    assert [run["workflow"] for run in everything] == ["flow", "failing", "flow"]
    assert [run["id"] for run in cli("runs", "--state", "failed", "--json").json["runs"]] == [everything[1]["id"]]
    assert len(cli("runs", "--workflow", "flow", "--json").json["runs"]) == 2
    first = cli("runs", "--limit", "2")
    assert "✗ failed" in first.out
    [before] = re.findall(r"older ones: stepkeep (.*)", first.out)
    assert [run["id"] for run in cli(*before.split(), "--json").json["runs"]] == [everything[2]["id"]]


def test_an_id_may_be_abbreviated_while_it_is_clear(cli: Cli) -> None:
    runs = [cli("start", "flow.yaml", "--json").json["run"]["id"] for _ in range(2)]
    assert cli("show", runs[0][-10:], "--json").json["run"]["id"] == runs[0]
    unclear = cli("show", runs[0][:4])
    assert (unclear.status, "2 runs match" in unclear.err) == (2, True)
    assert cli("show", "zzzz").status == 1
    assert cli("show", "ab").status == 2


def test_a_tenant_sees_its_own_runs_only(cli: Cli) -> None:
    run = cli("start", "flow.yaml", "--tenant", "blue", "--json").json["run"]["id"]
    assert cli("runs", "--json").json["runs"] == []
    assert cli("show", run).status == 1
    assert len(cli("runs", "--tenant", "blue", "--json").json["runs"]) == 1


def test_the_database_may_be_named_by_the_environment(cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPKEEP_DB", "sqlite:///other.db")
    cli("start", "flow.yaml")
    assert (home / "other.db").exists()
    assert len(cli("runs", "--db", "sqlite:///other.db", "--json").json["runs"]) == 1
    assert cli("runs", "--db", "sqlite:///third.db", "--json").json["error"]["code"] == "not_found"


def test_hints_name_the_database_that_was_typed(cli: Cli) -> None:
    said = cli("run", "gated.yaml", "--app", HANDLERS, "--db", "sqlite:///typed.db", "--tenant", "blue")
    assert re.search(r"stepkeep approve \S+ sign-off --db sqlite:///typed.db --tenant blue", said.out)


def test_a_python_file_may_hold_the_workflow(cli: Cli, home: Path) -> None:
    (home / "onboarding_flow.py").write_text(
        "import stepkeep as sk\n"
        "def greet(name: str) -> str:\n    return f'Hello, {name}'\n"
        "hello = sk.Workflow('hello', version=1)\nhello.step('greet', greet)\n"
    )
    said = cli("run", "onboarding_flow.py", "--input", '{"name": "Ada"}', "--json")
    assert (said.status, said.json["run"]["output"]) == (0, "Hello, Ada")
    assert cli("check", "onboarding_flow.py:hello").status == 0
    assert cli("run", "onboarding_flow.py:goodbye").status == 2


def test_an_existing_file_is_replaced_or_added_to_only_when_that_is_asked_for(cli: Cli, home: Path) -> None:
    first, second = (cli("run", "flow.yaml", "--app", HANDLERS, "--json").json["run"]["id"] for _ in range(2))
    assert cli("log", "export", first, "--output", "log.jsonl").status == 0
    before = (home / "log.jsonl").read_bytes()
    refused = cli("log", "export", second, "--output", "log.jsonl")
    assert refused.status == 2
    assert "log.jsonl exists. Give --append to add to it, or --force to replace it." in refused.err
    assert (home / "log.jsonl").read_bytes() == before
    assert cli("log", "export", second, "--output", "log.jsonl", "--append").status == 0
    assert (home / "log.jsonl").read_bytes().startswith(before)
    assert cli("log", "verify", "log.jsonl", "--json").json["runs"] == 2
    assert cli("log", "export", second, "--output", "log.jsonl", "--force").status == 0
    assert cli("log", "verify", "log.jsonl", "--json").json["runs"] == 1
    assert cli("log", "export", second, "--output", os.devnull).status == 0, "a device holds nothing that could be lost"
    assert cli("log", "export", second, "--append").status == 2
    assert cli("log", "export", second, "--output", "log.jsonl", "--append", "--force").status == 2


def test_a_log_with_workers_is_exported_and_verified(cli: Cli, home: Path) -> None:
    run = cli("run", "flow.yaml", "--app", HANDLERS, "--json").json["run"]["id"]
    for given in ([run], ["--all"], [run, "--as", "workstream"]):
        assert cli("log", "export", *given, "--workers", "--output", "log.jsonl", "--force").status == 0
        assert cli("log", "verify", "log.jsonl", "--json").json["runs"] == 2
        assert "worker_state_transition" in (home / "log.jsonl").read_text()
        assert cli("log", "verify", "log.jsonl").status == 0
    refused = cli("log", "export", run, "--workers", "--as", "ioa")
    assert (refused.status, "no words for workers" in refused.err) == (2, True)


def test_logs_are_exported_and_verified(cli: Cli, home: Path) -> None:
    runs = [cli("run", f"{file}.yaml", "--app", HANDLERS, "--json").json["run"]["id"] for file in ("flow", "undone")]
    assert cli("log", "export", runs[0], "--output", "one.jsonl").status == 0
    every = cli("log", "export", "--all", "--output", "all.jsonl", "--json").json["export"]
    assert every["lines"] == len((home / "all.jsonl").read_text().splitlines())
    good = cli("log", "verify", "all.jsonl")
    assert (good.status, "no findings" in good.out) == (0, True)
    lines = (home / "one.jsonl").read_text().splitlines(keepends=True)
    (home / "torn.jsonl").write_text("".join(lines[:3] + lines[4:]))
    torn = cli("log", "verify", "torn.jsonl")
    assert torn.status == 1
    assert re.search(r"^torn.jsonl:\d+: \w+: ", torn.out, re.MULTILINE)
    found = cli("log", "verify", "torn.jsonl", "--json").json
    assert found["ok"] is False
    assert all(finding["line"] > 0 for finding in found["findings"])


def test_the_schema_is_shown_and_brought_up_to_date(cli: Cli) -> None:
    assert "there is no database" in cli("db", "status").err
    Path(".stepkeep").mkdir()
    Path(".stepkeep/stepkeep.db").touch()
    before = cli("db", "status", "--json")
    assert (before.status, before.json["database"]["applied"]) == (1, [])
    assert "pending: stepkeep db migrate" in cli("db", "status").out
    after = cli("db", "migrate", "--json")
    assert (after.status, after.json["database"]["pending"]) == (0, [])
    assert "applied" in cli("db", "status").out


def test_workers_are_listed(cli: Cli) -> None:
    cli("db", "migrate")
    assert cli("workers").out == "no workers\n"
    cli("run", "flow.yaml", "--app", HANDLERS)
    assert cli("workers", "--json").json == {"workers": []}
    [worker] = cli("workers", "--all", "--json").json["workers"]
    assert worker["state"] == "shutdown"
    assert "shut down" in cli("workers", "--all").out


@pytest.mark.postgres
def test_the_same_commands_work_on_postgresql(cli: Cli, postgres_dsn: str) -> None:
    blocked = cli("run", "gated.yaml", "--app", HANDLERS, "--db", postgres_dsn, "--json")
    assert blocked.status == 4
    run = blocked.json["run"]["id"]
    assert cli("approve", run[-8:], "--db", postgres_dsn).status == 0
    assert cli("run", "--resume", run, "--app", HANDLERS, "--db", postgres_dsn).status == 0
    assert "sign-off" in cli("show", run, "--db", postgres_dsn).out
    assert cli("log", "export", run, "--output", "log.jsonl", "--db", postgres_dsn).status == 0
    assert cli("log", "verify", "log.jsonl").status == 0
    assert cli("db", "status", "--db", postgres_dsn).status == 0


@pytest.mark.postgres
def test_a_server_that_is_not_there_is_status_1_in_words(cli: Cli) -> None:
    said = cli("runs", "--db", "postgresql://ada:s3cret@127.0.0.1:1/none", "--json")
    assert (said.status, said.json["error"]["code"]) == (1, "store_unavailable")
    assert "s3cret" not in said.out + said.err


def test_the_output_of_a_run_is_shown_without_texts_under_secret_names(cli: Cli, home: Path) -> None:
    (home / "secret.yaml").write_text(
        'workflow: secret\ntimeout: 1h\noutput: {api_key: "${{ input.k }}", n: 1}\ninput: [k]\n'
        "steps: [{name: a, uses: cli.work, timeout: 5s, with: {}}]\n"
    )
    said = cli("run", "secret.yaml", "--app", HANDLERS, "--input", '{"k": "hush-hush"}')
    assert '"api_key": "***"' in said.out
    assert "hush-hush" not in said.out
    run = cli("runs", "--json").json["runs"][0]["id"]
    assert "hush-hush" not in cli("show", run).out.replace('"k": "hush-hush"', "")
    assert cli("show", run, "--json").json["run"]["output"]["api_key"] == "hush-hush"


def test_a_decision_below_the_quorum_says_what_was_counted_and_what_is_needed(cli: Cli, home: Path) -> None:
    gated = home / "gated.yaml"
    gated.write_text(gated.read_text().replace("{deadline: 1h}", "{deadline: 1h, quorum: 2, not: [requester]}"))
    run = cli("run", "gated.yaml", "--app", HANDLERS, "--json").json["run"]["id"]
    refused = cli("approve", run)
    assert refused.status == 1
    assert "asked for the run (maker_checker)" in refused.err
    said = cli("approve", run, "--by", "bea", "--evidence", "doc:7").out
    assert f"sign-off approved by bea: counted, 1 of 2; it needs 1 more of anyone; run {run} is blocked\n" in said
    again = cli("approve", run, "--by", "bea").out
    assert "sign-off approved by bea (as before): counted, 1 of 2" in again
    final = cli("reject", run, "--by", "bea")
    assert final.status == 1
    assert "a decision is final" in final.err
    for_another = cli("approve", run, "--by", "cyd", "--for", "dan", "--json")
    assert for_another.status == 1
    assert "cyd has no delegation of dan" in for_another.out + for_another.err
    assert "sign-off approved by cyd; run" in cli("approve", run, "--by", "cyd").out


def test_runs_of_a_paused_workflow_start_paused(cli: Cli) -> None:
    cli("publish", "gated.yaml")
    said = cli("pause", "--workflow", "gated", "--reason", "a bad release", "--by", "ann")
    assert said.status == 0
    assert "runs of gated start paused from now on" in said.out
    assert "stepkeep jobs start pause --workflow gated" in said.out
    assert "stepkeep resume --workflow gated" in said.out
    assert "paused: new runs of gated, by ann since" in cli("status").out
    run = cli("start", "gated", "--json").json["run"]["id"]
    assert "is paused by ann since" in cli("explain", run).out
    assert cli("resume", "--workflow", "gated", "--json").json == {"pauses": []}
    assert "stepkeep jobs start resume --workflow gated" in cli("resume", "--workflow", "gated").out
    for wrong in (("--workflow", "nothing"), ("--workflow", "gated", "--all"), (run, "--workflow", "gated")):
        assert cli("pause", *wrong).status not in (0, None)


def test_a_paused_run_waits_until_it_is_resumed(cli: Cli) -> None:
    run = cli("run", "gated.yaml", "--app", HANDLERS, "--json").json["run"]["id"]
    said = cli("pause", run, "--reason", "the shop is closed", "--by", "ann")
    assert (said.status, said.out.strip()) == (0, f"run {run} is paused")
    assert "is paused by ann since" in cli("explain", run).out
    assert cli("approve", run).status == 0
    assert cli("run", "--resume", run, "--app", HANDLERS, "--json").json["run"]["state"] == "paused"
    resumed = cli("resume", run, "--json")
    assert (resumed.status, resumed.json["decision"]["repeated"]) == (0, False)
    assert cli("run", "--resume", run, "--app", HANDLERS, "--json").json["run"]["state"] == "succeeded"
    assert cli("pause", run).status != 0
