"""What steps may do is chosen where they run: by options of the commands, and of the engine in Python."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.cli.policies import StepPolicies, parse_size
from tests.cli.conftest import HANDLERS, Cli
from tests.worker.loopback import Server

CALL = """
workflow: call
timeout: 1m
steps:
  - {name: call, http: {url: "URL"}, retry: {max_attempts: 1}}
"""
COMMAND = """
workflow: command
timeout: 1m
steps:
  - {name: echo, command: {argv: ["env"]}}
"""


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def write(home: Path, name: str, text: str) -> str:
    (home / name).write_text(text)
    return name


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ([], 1),
        (["--http-allow", "10.0.0.0/8"], 1),
        (["--http-allow", "localhost"], 1),
        (["--http-allow", "127.0.0.0/8", "--http-port", "443"], 1),
        (["--http-allow", "10.0.0.0/8", "--http-allow", "127.0.0.1"], 0),
        (["--http-allow-internal"], 0),
    ],
)
def test_an_http_step_reaches_the_loopback_only_where_the_operator_allows_it(
    cli: Cli, home: Path, server: Server, options: list[str], status: int
) -> None:
    file = write(home, "call.yaml", CALL.replace("URL", server.url("/a?key=CANARY")))
    said = cli("run", file, "--json", *options)
    assert said.status == status
    assert len(server.requests) == (1 if status == 0 else 0)
    assert (said.json["run"]["error"] is None) == (status == 0)


def test_rerun_takes_the_same_options(cli: Cli, home: Path, server: Server) -> None:
    file = write(home, "call.yaml", CALL.replace("URL", server.url()))
    run = cli("run", file, "--json").json["run"]["id"]
    assert cli("rerun", run, "--json").status == 1
    assert cli("rerun", run, "--json", "--http-allow", "127.0.0.1").status == 0


def test_programs_and_variables_are_chosen_by_options(cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGION", "north")
    file = write(home, "command.yaml", COMMAND)
    assert "REGION" not in cli("run", file, "--json").json["run"]["output"]["stdout"]
    said = cli("run", file, "--json", "--command-allow", "env", "--command-env", "REGION")
    assert "REGION=north" in said.json["run"]["output"]["stdout"]
    said = cli("run", file, "--json", "--command-allow", "true")
    assert said.status == 1
    assert "not among the programs" in said.json["run"]["error"]


@pytest.mark.parametrize(("option", "text"), [("--no-commands", COMMAND), ("--no-http", CALL)])
def test_a_run_that_this_process_may_not_do_is_refused_and_not_waited_for(
    cli: Cli, home: Path, option: str, text: str
) -> None:
    said = cli("run", write(home, "flow.yaml", text.replace("URL", "http://example.com/")), option, "--json")
    assert said.status == 2
    assert "cannot run here" in said.json["error"]["message"]


RULED = """
workflow: ruled
timeout: 1m
steps:
  - {name: say, uses: cli.work, post: [{command: ["true"]}]}
"""
FINAL = """
workflow: final
timeout: 1m
steps:
  - {name: say, uses: cli.work}
rules: [{command: ["true"]}]
"""


@pytest.mark.parametrize("text", [RULED, FINAL], ids=["step", "run"])
def test_rules_that_are_commands_run_where_command_steps_do(cli: Cli, home: Path, text: str) -> None:
    file = write(home, "ruled.yaml", text)
    said = cli("run", file, "--app", HANDLERS, "--json")
    assert said.status == 0
    assert "needs the capability" not in said.err
    for options in (["--no-commands"], ["--allow-commands", "acme"]):
        said = cli("run", file, "--app", HANDLERS, "--json", *options)
        assert said.status == 2
        assert "commands, and this program may not do that" in said.json["error"]["message"]
    assert cli("run", file, "--app", HANDLERS, "--json", "--allow-commands", "default").status == 0


@pytest.mark.parametrize(
    "options",
    [
        ["--http-allow", "http://localhost"],
        ["--http-allow", ""],
        ["--http-port", "0"],
        ["--command-allow", "no-such-program"],
        ["--commands-as", "no-such-user"],
        ["--command-env", "STEPKEEP_SECRET_TOKEN"],
        ["--command-memory", "much"],
        ["--command-memory", "1"],
        ["--process-memory", "1KiB"],
        ["--process-memory", "-1"],
        ["--secrets-dir", "no/such/directory"],
        ["--secrets-file", "no-such-file"],
        ["--secrets-command", "unclosed 'quote"],
        ["--secrets-command", " "],
    ],
)
@pytest.mark.parametrize("command", ["run", "worker"])
def test_options_that_make_no_sense_are_usage(cli: Cli, home: Path, command: str, options: list[str]) -> None:
    files = [write(home, "command.yaml", COMMAND)] if command == "run" else []
    assert cli(command, *files, *options).status == 2
    assert not (home / ".stepkeep" / "stepkeep.db").exists()


def test_only_root_runs_commands_as_another_user(cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user with the capability to change users would hand it on to the commands."""
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    said = cli("run", write(home, "command.yaml", COMMAND), "--commands-as", "nobody")
    assert said.status == 2
    assert "only root runs programs as another user" in said.err
    with sk.open(f"sqlite:///{home}/x.db", commands=sk.CommandPolicy(user="nobody")) as engine:
        workflow = sk.Workflow("flow", version=1)
        workflow.command("say", ["true"])
        result = engine.run(workflow)
        assert (result.state, "may not run commands as nobody" in str(result.error)) == ("failed", True)


def test_sizes_are_read_as_people_write_them() -> None:
    read: Callable[[str], Any] = lambda text: parse_size("--process-memory", text)  # noqa: E731
    assert [read("64MiB"), read("2g"), read("1 GB"), read("100000000")] == [64 << 20, 2 << 30, 1 << 30, 100_000_000]
    for text in ("", "GiB", "1.5GiB", "2XB", "١GiB", "1e9", "9" * 30):
        with pytest.raises(sk.InvalidInput):
            read(text)


def test_without_options_steps_may_do_what_the_policies_allow_by_default() -> None:
    assert StepPolicies().options() == {
        "http": sk.HttpPolicy(),
        "commands": sk.CommandPolicy(),
        "process_memory_bytes": None,
        "secrets": sk.Secrets(),
    }
    assert not sk.HttpPolicy().allow_internal
    assert sk.HttpPolicy().allow == ()


def test_an_engine_in_python_holds_its_workers_to_its_policies(database_url: str, server: Server) -> None:
    workflow = sk.Workflow("call", version=1)
    workflow.http("call", server.url(), retry=sk.Retry(max_attempts=1))
    with sk.open(database_url) as engine:
        assert engine.run(workflow).state == "failed"
    with sk.open(database_url, http=sk.HttpPolicy(allow=("127.0.0.1",))) as engine:
        assert engine.run(workflow).state == "succeeded"
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: sk.HttpPolicy(allow="localhost"),  # type: ignore[arg-type]
        lambda: sk.CommandPolicy(programs="true"),  # type: ignore[arg-type]
        lambda: sk.CommandPolicy(environment="REGION"),  # type: ignore[arg-type]
        lambda: sk.open("sqlite:///x.db", http="open"),
        lambda: sk.open("sqlite:///x.db", commands=sk.HttpPolicy()),
        lambda: sk.open("sqlite:///x.db", process_memory_bytes=1),
    ],
)
def test_policies_that_make_no_sense_are_refused_at_once(wrong: Callable[[], object]) -> None:
    with pytest.raises(sk.InvalidInput):
        wrong()


async def test_a_worker_in_python_may_have_policies_of_its_own(tmp_path: Path, server: Server) -> None:
    workflow = sk.Workflow("call", version=1)
    workflow.http("call", server.url(), retry=sk.Retry(max_attempts=1))

    async with sk.AsyncEngine(f"sqlite:///{tmp_path}/test.db") as engine:
        started = await engine.start(workflow)
        worker = engine.worker(http=sk.HttpPolicy(allow_internal=True), process_memory_bytes=1 << 30)

        async def ended() -> bool:
            return (await engine.result(started.run_id)).finished

        async with asyncio.timeout(30):
            await worker.run_until(ended)
        assert (str((await engine.result(started.run_id)).state)) == "succeeded"
