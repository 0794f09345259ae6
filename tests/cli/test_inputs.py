"""What the command line reads: files, pipes and devices that people name, and tokens that must not be seen."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.conftest import HANDLERS, Cli, finish
from tests.suites import in_proof


def run(*arguments: str, shell: str = '"$@"', **options: object) -> subprocess.CompletedProcess[str]:
    """Run a command as `"$@"` in a shell; it hangs forever where it waits for a writer, so time is bounded."""
    command = ["bash", "-c", shell, "bash", sys.executable, "-m", "stepkeep", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)  # type: ignore[call-overload,no-any-return]


@contextmanager
def fifo(path: Path) -> Iterator[Path]:
    os.mkfifo(path)
    yield path
    path.unlink()


@contextmanager
def alarm(seconds: int) -> Iterator[None]:
    """End the test process where a command waits forever for a writer."""
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


# -- JSON ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[" * 200_000, "nested too deeply"),
        ('{"a": 1, "a": 2}', "the key 'a' twice"),
        ('{"x": [{"b": 1, "c": 2, "b": 1}]}', "the key 'b' twice"),
        ('{"a\x7f', "is not JSON"),
    ],
)
def test_json_that_cannot_be_taken_whole_is_refused(cli: Cli, home: Path, text: str, says: str) -> None:
    (home / "given.json").write_text(text)
    for command in (["start", "flow.yaml"], ["run", "flow.yaml"], ["simulate", "flow.yaml"]):
        said = cli(*command, "--input", "@given.json")
        assert (said.status, said.out) == (2, "")
        assert says in said.err
    assert not (home / ".stepkeep" / "stepkeep.db").exists()


def test_files_without_an_end_and_pipes_without_a_writer_are_refused_at_once(cli: Cli, home: Path) -> None:
    with fifo(home / "silent.yaml"), alarm(60):
        for arguments, says in (
            (["start", "flow.yaml", "--input", "@/dev/zero"], "it is a device or a socket"),
            (["start", "flow.yaml", "--input", "@silent.yaml"], "nothing writes to it"),
            (["start", "flow.yaml", "--input", "@."], "Is a directory"),
            (["check", "silent.yaml"], "nothing writes to it"),
            (["check", "/dev/zero"], "it is a device or a socket"),
            (["run", "silent.yaml"], "nothing writes to it"),
            (["log", "verify", "silent.yaml"], "nothing writes to it"),
            (["log", "verify", "/dev/zero"], "it is a device or a socket"),
            (["complete", "x" * 36, "step", "--token-file", "silent.yaml"], "nothing writes to it"),
        ):
            said = cli(*arguments)
            assert said.status == 2, said
            assert says in said.out + said.err


def test_a_pipe_without_end_is_read_no_further_than_the_limit(home: Path) -> None:
    said = run("start", "flow.yaml", "--input", "@-", shell='exec "$@" < /dev/zero')
    assert said.returncode == 2
    assert "more than 4,194,304 bytes" in said.stderr


@pytest.mark.proof
def test_a_shell_may_hand_over_what_a_program_writes(home: Path) -> None:
    """Process substitution: a pipe whose writer may be slow, and may write in pieces."""
    script = """exec "$@" --input @<(sleep 0.2; printf '{"a":'; sleep 0.2; printf '1}')"""
    said = run("start", "flow.yaml", "--json", shell=script)
    assert json.loads(said.stdout)["run"]["input"] == {"a": 1}, said.stderr
    said = run("check", "/dev/stdin", shell='cat flow.yaml | "$@"')
    assert said.returncode == 0, said
    assert "no problems" in said.stdout


@pytest.mark.proof
def test_a_packed_log_is_verified_from_a_file_and_from_a_pipe(cli: Cli, home: Path) -> None:
    cli("run", "flow.yaml", "--app", HANDLERS)
    cli("log", "export", "--all", "--output", "log.jsonl")
    (home / "log.jsonl.gz").write_bytes(gzip.compress((home / "log.jsonl").read_bytes()))
    for name in ("log.jsonl", "log.jsonl.gz"):
        assert cli("log", "verify", name).status == 0
        said = run("log", "verify", "-", shell=f'cat {name} | "$@"')
        assert (said.returncode, "no findings" in said.stdout) == (0, True), said
        said = run("log", "verify", "/dev/stdin", shell=f'cat {name} | "$@"')
        assert (said.returncode, "no findings" in said.stdout) == (0, True), said
    said = run("log", "verify", "-", shell='printf "" | "$@"')
    assert said.returncode == 1


def test_a_file_whose_name_is_no_text_is_named_in_json_and_in_words(home: Path) -> None:
    name = b"odd-\xff\x1b.yaml"
    (home / "flow.yaml").rename(os.fsdecode(bytes(home) + b"/" + name))
    said = run("check", os.fsdecode(name), "--json")
    assert (said.returncode, said.stderr) == (0, "")
    assert json.loads(said.stdout)["file"] == "odd-\\udcff\x1b.yaml"
    said = run("check", os.fsdecode(name))
    assert said.stdout.startswith("odd-\\udcff\\x1b.yaml: flow version 1")


# -- tokens ----------------------------------------------------------------------------------------------------------
@pytest.mark.proof
def test_a_token_may_come_from_a_file_a_pipe_or_the_environment(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch, process: Callable[..., subprocess.Popen[str]]
) -> None:
    def started() -> tuple[str, str]:
        said = cli("run", "manual.yaml", "--app", HANDLERS, "--json").json["run"]
        return said["id"], said["waiting_for"][0]["token"]

    run_id, token = started()
    (home / "token").write_text(f"{token}\n")
    assert cli("complete", run_id, "by-hand", "--token-file", "token").status == 0
    run_id, token = started()
    said = run("complete", run_id, "by-hand", "--token-file", "-", shell=f'echo {token} | "$@"')
    assert said.returncode == 0, said
    run_id, token = started()
    monkeypatch.setenv("STEPKEEP_TOKEN", token)
    assert finish(process("complete", run_id, "by-hand")).status == 0


# -- code ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("class Odd(BaseException): pass\nraise Odd('no')\n", "Odd: no (app.py, line 2)"),
        (
            "class Odd(Exception):\n    def __str__(self): raise self\nraise Odd\n",
            "Odd (its message cannot be read) (app.py, line 3)",
        ),
        (
            "import stepkeep\nclass Odd(stepkeep.StepkeepError):\n    def __str__(self): return 5\nraise Odd\n",
            "cannot load app.py: Odd (app.py, line 4)",
        ),
        ("raise GeneratorExit\n", "GeneratorExit (app.py, line 1)"),
        (
            "class Code:\n    def __repr__(self): raise ValueError\n    __str__ = __repr__\nraise SystemExit(Code())\n",
            "it ended the program (SystemExit) (app.py, line 4)",
        ),
    ],
)
def test_code_that_fails_in_whatever_way_while_it_is_imported_is_bad_input(
    cli: Cli, home: Path, code: str, says: str
) -> None:
    (home / "app.py").write_text(code)
    said = cli("run", "flow.yaml", "--app", "app.py")
    assert (said.status, says in said.err) == (2, True), said


# -- streams ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "command",
    [
        in_proof(["runs"]),
        in_proof(["show", "RUN"]),
        in_proof(["runs", "--json"]),
        in_proof(["log", "export", "--all"]),
        ["-h"],
    ],
)
def test_a_standard_output_that_is_gone_or_full_gives_no_traceback(cli: Cli, home: Path, command: list[str]) -> None:
    run_id = cli("run", "flow.yaml", "--app", HANDLERS, "--json").json["run"]["id"]
    words = [run_id if word == "RUN" else word for word in command]
    gone = run(*words, shell='set -o pipefail; "$@" | sleep 0; exit ${PIPESTATUS[0]}')
    assert gone.stderr == ""
    assert gone.returncode in (0, 141) or command == ["-h"]
    closed = run(*words, shell='exec "$@" >&-')
    assert (closed.returncode, closed.stderr) == (0, "")
    full = run(*words, shell='exec "$@" > /dev/full')
    assert (full.returncode, full.stderr) == (
        1,
        "error: standard output cannot be written: No space left on device.\n",
    )
    deaf = run(*words, shell='exec "$@" 2>&-')
    assert deaf.returncode == 0


def test_a_reader_that_goes_away_is_noticed(cli: Cli, home: Path) -> None:
    for _ in range(20):
        cli("start", "flow.yaml")
    said = run("log", "export", "--all", shell='"$@" | head -c 1 > /dev/null; exit ${PIPESTATUS[0]}')
    assert (said.returncode, said.stderr) == (0, "") or (said.returncode, said.stderr) == (141, "")
