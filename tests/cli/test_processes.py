"""Real processes: killed, interrupted, drained. What was acknowledged is never lost, and little is done twice."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from stepkeep.cli.settings import DEFAULT_DB
from tests.cli.conftest import HANDLERS, Cli, finish
from tests.store.raw import expire_leases
from tests.workbench import wait_until

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def ledger(home: Path) -> Path:
    """Where every execution leaves a line; `middle` is held until a test lets it go."""
    file = home / "ledger.txt"
    file.touch()
    (home / "hold-middle").touch()
    return file


def executed(ledger: Path) -> Counter[str]:
    return Counter(line.split()[0] for line in ledger.read_text().splitlines())


def slow_run(process: Start, ledger: Path, *more: str) -> subprocess.Popen[str]:
    """A run that has got as far as the middle of its second step."""
    child = process("run", "slow.yaml", "--app", HANDLERS, "--input", json.dumps({"ledger": str(ledger)}), *more)
    wait_until(lambda: executed(ledger)["middle"] == 1 or child.poll() is not None)
    assert child.poll() is None, child.communicate()
    return child


def told_until(child: subprocess.Popen[str], text: str) -> str:
    """What a process says, up to the line with this text."""
    assert child.stdout is not None
    told = ""
    while text not in told:
        line = child.stdout.readline()
        assert line, f"the process ended without a word of {text!r}: {told}"
        told += line
    return told


def only_run(cli: Cli) -> str:
    [run] = cli("runs", "--json").json["runs"]
    return str(run["id"])


def test_a_run_that_was_killed_goes_on_where_it_stood(process: Start, cli: Cli, ledger: Path) -> None:
    child = slow_run(process, ledger)
    child.send_signal(signal.SIGKILL)
    child.wait()
    ledger.with_name("hold-middle").unlink()
    run = only_run(cli)
    again = process("run", "--resume", run, "--app", HANDLERS)
    told = told_until(again, "middle is leased to worker ")
    expire_leases(DEFAULT_DB)
    said = finish(again)
    assert said.status == 0, said
    assert "1 of 3 steps were settled before" in told
    assert "if that worker is gone, middle goes on in " in told
    assert "before  running" not in told + said.out
    assert executed(ledger) == {"before": 1, "middle": 2, "after": 1}
    [lost, _] = cli("show", run, "--json").json["steps"][1]["history"]
    assert lost["state"] == "lost"


def test_an_interrupted_run_says_how_to_go_on_and_hands_back_what_it_held(
    process: Start, cli: Cli, ledger: Path
) -> None:
    child = slow_run(process, ledger)
    child.send_signal(signal.SIGINT)
    told_until(child, "interrupted")
    child.send_signal(signal.SIGINT)
    said = finish(child)
    run = only_run(cli)
    assert said.status == 4
    assert f"stepkeep run --resume {run} --app {HANDLERS}" in said.err
    ledger.with_name("hold-middle").unlink()
    assert finish(process("run", "--resume", run, "--app", HANDLERS)).status == 0
    assert executed(ledger) == {"before": 1, "middle": 2, "after": 1}
    assert cli("show", run, "--json").json["steps"][1]["attempts"] == 1


def test_a_run_whose_reader_has_gone_goes_on_and_ends_on_a_signal(process: Start, cli: Cli, ledger: Path) -> None:
    """The note about the interrupt cannot be written; it must not keep the signal from the worker."""
    child = slow_run(process, ledger)
    assert child.stdout is not None
    child.stdout.close()
    child.send_signal(signal.SIGTERM)

    def is_heard() -> bool:
        return child.poll() is not None or "draining" in str(cli("workers", "--json").json["workers"])

    wait_until(is_heard)
    child.send_signal(signal.SIGTERM)
    said = finish(child)
    assert (said.status, said.err) == (141, "")
    run = only_run(cli)
    assert cli("show", run, "--json").json["steps"][1]["state"] == "ready"
    ledger.with_name("hold-middle").unlink()
    again = process("run", "--resume", run, "--app", HANDLERS)
    assert again.stdout is not None
    again.stdout.close()
    # Without a reader from the start, the work is done all the same.
    assert finish(again).status == 141
    assert cli("show", run, "--json").json["run"]["state"] == "succeeded"
    assert executed(ledger) == {"before": 1, "middle": 2, "after": 1}


def test_a_worker_finishes_what_it_runs_when_it_is_told_to_stop(process: Start, cli: Cli, ledger: Path) -> None:
    worker = process("worker", "--app", HANDLERS, "--concurrency", "2", "--name", "box")
    run = cli("start", "slow.yaml", "--app", HANDLERS, "--input", json.dumps({"ledger": str(ledger)}), "--json")
    run_id = run.json["run"]["id"]
    wait_until(lambda: executed(ledger)["middle"] == 1)
    wait_until(lambda: cli("workers", "--json").json["workers"][0]["state"] == "busy")
    worker.send_signal(signal.SIGTERM)
    wait_until(lambda: cli("workers", "--json").json["workers"][0]["state"] == "draining")
    ledger.with_name("hold-middle").unlink()
    said = finish(worker)
    assert said.status == 0, said
    assert "draining: 1 step has 30 s to finish; a second signal hands them back at once" in said.err
    assert "has drained and stopped" in said.err
    [row] = cli("workers", "--all", "--json").json["workers"]
    assert row["state"] == "shutdown"
    assert row["id"].startswith("box:")
    after = cli("show", run_id, "--json").json
    assert [step["state"] for step in after["steps"]][:2] == ["succeeded", "succeeded"]
    assert after["steps"][1]["attempts"] == 1
    assert executed(ledger)["after"] == 0


@pytest.mark.proof
def test_a_worker_serves_what_others_start(process: Start, cli: Cli) -> None:
    worker = process("worker", "--app", HANDLERS)
    run = cli("start", "flow.yaml", "--app", HANDLERS, "--json").json["run"]["id"]
    wait_until(lambda: cli("show", run, "--json").json["run"]["state"] == "succeeded")
    worker.send_signal(signal.SIGINT)
    assert finish(worker).status == 0


@pytest.mark.proof
def test_json_is_alone_on_standard_output_even_when_handlers_print(process: Start) -> None:
    said = finish(process("run", "flow.yaml", "--app", HANDLERS, "--json"))
    assert said.json["run"]["state"] == "succeeded"
    assert "a handler prints this" in said.err


def test_help_loads_nothing_heavy(home: Path) -> None:
    code = (
        "import sys; from stepkeep.cli.main import main; status = main(['--help']); "
        "heavy = {'asyncpg', 'apsw', 'cel_expr_python', 'httpx2', 'pydantic', 'yaml', 'stepkeep.engine', "
        "'stepkeep.operations.pipeline.transact', "
        "'markdown_it', 'pygments'}; "
        "print(sorted(heavy & sys.modules.keys()), file=sys.stderr); sys.exit(status)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (0, "[]")


def test_a_pipe_that_closes_early_is_no_error(cli: Cli, process: Start) -> None:
    cli("run", "flow.yaml", "--app", HANDLERS)
    child = process("show", only_run(cli))
    assert child.stdout is not None
    child.stdout.close()
    assert child.stderr is not None
    assert "Traceback" not in child.stderr.read()
    child.wait()


def test_a_terminal_shows_moving_progress(home: Path) -> None:
    import pty

    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "stepkeep", "run", "flow.yaml", "--app", HANDLERS]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"}
    environment.pop("NO_COLOR", None)
    child = subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=theirs, env=environment)
    os.close(theirs)
    shown = b""
    try:
        while data := os.read(ours, 65536):
            shown += data
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert child.wait(60) == 0
    text = shown.decode()
    assert "\x1b[" in text
    assert "2/2 steps" in text or "1/2 steps" in text
    assert "second" in text


def test_the_demonstration_keeps_its_promises(process: Start) -> None:
    said = finish(process("demo", "--directory", "tour"))
    assert said.status == 0, said
    for word in ("rolled back", "exit status -9", "executed 2 times", "approved by", "no findings", "Try next"):
        assert word in said.out
    assert "fetch-orders   executed once" in said.out


@pytest.mark.proof
def test_the_demonstration_as_json(process: Start) -> None:
    demo = finish(process("demo", "--directory", "tour", "--json")).json["demo"]
    assert demo["ok"] is True
    assert [view["run"]["state"] for view in demo["runs"]] == ["rolled_back", "succeeded", "succeeded"]
    convert = next(step for step in demo["runs"][1]["steps"] if step["name"] == "convert")
    assert [attempt["state"] for attempt in convert["history"]] == ["lost", "succeeded"]
    assert [step["attempts"] for step in demo["runs"][1]["steps"] if step["name"].startswith("fetch")] == [1, 1]


@pytest.mark.proof
def test_a_packed_log_is_verified_from_a_pipe_as_from_a_file(cli: Cli, home: Path) -> None:
    assert cli("run", "flow.yaml", "--app", HANDLERS).status == 0
    assert cli("log", "export", "--all", "--output", "log.jsonl").status == 0
    plain = (home / "log.jsonl").read_bytes()
    packed = gzip.compress(plain)
    command = [sys.executable, "-m", "stepkeep", "log", "verify", "-", "--json"]
    verdicts = []
    for given in (plain, packed, packed[:-20], b"", packed[:1]):
        done = subprocess.run(command, input=given, capture_output=True, timeout=60, check=False)
        assert b"Traceback" not in done.stderr
        verdicts.append((done.returncode, json.loads(done.stdout)["lines"]))
    assert verdicts[0] == verdicts[1] == (0, len(plain.splitlines()))
    assert verdicts[2][0] == 1, "cut off in the middle"
    assert verdicts[4][0] == 1, "one byte is no log"


def test_a_run_is_not_repeated_or_continued_here_without_its_code(process: Start, cli: Cli) -> None:
    failed = cli("run", "failing.yaml", "--app", HANDLERS, "--json").json["run"]["id"]
    for command in ("retry", "rerun"):
        said = finish(process(command, failed))
        assert said.status == 2, said
        assert "Name it with --app; or leave the new run to workers (--no-wait)." in said.err
    assert only_run(cli) == failed
    assert finish(process("retry", failed, "--no-wait")).status == 4
