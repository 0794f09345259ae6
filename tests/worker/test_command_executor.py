"""Command steps: an argument list, a bounded capture, a group that ends with its attempt (faults 4.2)."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.workbench import until
from tests.worker.making import RUN, a_job, is_gone, outcome_of, outcomes

from stepkeep.kernel.definition import Command, Completion
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.outcomes import Completed, Failed, Stopped, TimedOut
from stepkeep.kernel.machine.states import Category
from stepkeep.worker.cancellation import Why
from stepkeep.worker.executors.command import CAPTURE, CommandPolicy
from stepkeep.worker.settings import Settings

PYTHON = sys.executable


def run(*argv: str, settings: Settings | None = None, **fields: Any) -> Any:
    env = fields.pop("env", {})
    cwd = fields.pop("cwd", None)
    outcome = outcome_of(a_job(Command(argv=argv, env=env, cwd=cwd), settings=settings, **fields))
    return msgspec.json.decode(outcome.output) if isinstance(outcome, Completed) and outcome.output else outcome


def python(code: str, *arguments: str, **fields: Any) -> Any:
    return run(PYTHON, "-c", code, *arguments, **fields)


def test_a_command_that_succeeds_gives_its_status_and_what_it_printed() -> None:
    assert python("import sys; print('out'); print('err', file=sys.stderr)") == {
        "exit_code": 0,
        "stdout": "out\n",
        "stderr": "err\n",
    }


def test_json_on_standard_output_is_parsed_beside_the_text() -> None:
    found = python("print('{\"n\": [1, 2]}')")
    assert found["json"] == {"n": [1, 2]}
    assert found["stdout"] == '{"n": [1, 2]}\n'


def test_inputs_arrive_as_json_on_standard_input() -> None:
    assert run("cat", inputs={"email": "a@b.c", "n": 1})["json"] == {"email": "a@b.c", "n": 1}


def test_a_program_need_not_read_its_input() -> None:
    assert run("true", inputs={"large": "x" * 200_000})["exit_code"] == 0


def test_a_failing_command_is_external_and_shows_the_end_of_its_errors() -> None:
    outcome = python("import sys; sys.stderr.write('first\\n' * 2000 + 'the reason'); sys.exit(7)")
    assert isinstance(outcome, Failed)
    assert outcome.category is Category.EXTERNAL
    assert outcome.error.startswith("exit status 7")
    assert outcome.error.endswith("the reason")
    assert len(outcome.error) <= 4000


def test_a_command_killed_from_outside_says_by_which_signal() -> None:
    outcome = python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith("killed:9")


@pytest.mark.parametrize("argv", [("no-such-program-anywhere",), ("/etc/hostname",), ("a\x00b",)])
def test_a_command_that_cannot_start_fails_for_good(argv: tuple[str, ...]) -> None:
    outcome = run(*argv)
    assert isinstance(outcome, Failed)
    assert (outcome.category, outcome.final) == (Category.VALIDATION, True)


@pytest.mark.parametrize(
    "text", ["; echo broken", "$(echo broken)", "`id`", "a\nb", "--help", "a b", "*", "$HOME", "|cat"]
)
def test_arguments_reach_the_program_untouched_by_any_shell(text: str) -> None:
    assert python("import sys, json; print(json.dumps(sys.argv[1:]))", text)["json"] == [text]


def test_only_the_end_of_a_long_output_is_kept() -> None:
    found = python("print('x' * 500_000 + 'end')")
    assert found["stdout_cut"] is True
    assert len(found["stdout"]) == CAPTURE
    assert found["stdout"].endswith("end\n")
    assert "json" not in found


def test_output_that_is_no_text_is_made_storable() -> None:
    found = python("import sys; sys.stdout.buffer.write(b'a\\x00\\xff b')")
    assert found["stdout"] == "a\ufffd\ufffd b"


def test_the_environment_is_an_allow_list_with_the_steps_own_and_who_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "secret")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    job = a_job(
        Command(argv=(PYTHON, "-c", "import os, json; print(json.dumps(dict(os.environ)))"), env={"MODE": "fast"}),
        completion=Completion.MANUAL,
        claim={"attempts": 4},
    )
    job.completion_token = "token-1"
    outcome = outcome_of(job)
    assert isinstance(outcome, Completed)
    env = msgspec.json.decode(outcome.output or b"")["json"]
    assert "DATABASE_PASSWORD" not in env
    assert {name: env[name] for name in env if name.startswith("STEPKEEP_")} == {
        "STEPKEEP_RUN_ID": RUN,
        "STEPKEEP_STEP": "charge",
        "STEPKEEP_ATTEMPT": "5",
        "STEPKEEP_IDEMPOTENCY_KEY": f"{RUN}:charge",
        "STEPKEEP_COMPLETION_TOKEN": "token-1",
    }
    assert (env["MODE"], env["LC_ALL"], env["PATH"]) == ("fast", "C.UTF-8", os.environ["PATH"])


def test_a_private_directory_is_empty_and_gone_afterwards() -> None:
    settings = Settings(commands=CommandPolicy(private_cwd=True))
    code = "import os, json; print(json.dumps([os.getcwd(), os.listdir()]))"
    where, held = python(code, settings=settings)["json"]
    assert held == []
    assert not Path(where).exists()
    assert where != os.getcwd()


def test_a_command_cannot_take_more_memory_than_it_was_allowed() -> None:
    settings = Settings(commands=CommandPolicy(memory=512 * 1024**2))
    outcome = python("import time; time.sleep(0.2); bytearray(4 * 1024**3)", settings=settings)
    assert isinstance(outcome, Failed)
    assert "MemoryError" in outcome.error


def test_a_directory_that_the_step_names_is_used(tmp_path: Path) -> None:
    assert run("pwd", cwd=str(tmp_path))["stdout"].strip() == str(tmp_path.resolve())


def test_what_a_command_leaves_running_is_ended_and_does_not_hold_it_up(tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    code = f"import subprocess; p = subprocess.Popen(['sleep', '600']); open({str(marker)!r}, 'w').write(str(p.pid))"
    assert python(code)["exit_code"] == 0
    assert is_gone(int(marker.read_text()))


@pytest.mark.parametrize(("why", "expected"), [(Why.TIMED_OUT, TimedOut()), (Why.LEASE_LOST, Stopped())])
async def test_a_stopped_command_ends_with_its_whole_group_even_if_it_ignores_being_asked(
    tmp_path: Path, why: Why, expected: object
) -> None:
    marker = tmp_path / "pids"
    code = (
        "import os, signal, subprocess, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "p = subprocess.Popen(['sleep', '600'])\n"
        f"open({str(marker)!r}, 'w').write(f'{{os.getpid()}} {{p.pid}}')\n"
        "time.sleep(600)\n"
    )
    job = a_job(Command(argv=(PYTHON, "-c", code)))

    async def stop(runner: Any) -> None:
        await until(lambda: marker.exists() and bool(marker.read_text()))
        job.cancelled.set(why)
        runner.stop(job)

    assert await outcomes([job], during=stop) == [expected]
    assert all(is_gone(int(pid)) for pid in marker.read_text().split())


async def test_a_command_that_is_stopped_in_the_moment_of_its_start_ends_too(tmp_path: Path) -> None:
    marker = tmp_path / "pids"
    code = (
        "import os, subprocess, time\n"
        "p = subprocess.Popen(['sleep', '600'])\n"
        f"open({str(marker)!r}, 'a').write(f'{{os.getpid()}} {{p.pid}}\\n')\n"
        "time.sleep(600)\n"
    )
    jobs = [a_job(Command(argv=(PYTHON, "-c", code))) for _ in range(8)]

    async def stop(runner: Any) -> None:
        for job in jobs:
            await until(lambda job=job: job.begun)
            job.cancelled.set(Why.LEASE_LOST)
            runner.stop(job)

    assert await outcomes(jobs, during=stop) == [Stopped()] * len(jobs)
    left = marker.read_text().split() if marker.exists() else []
    assert all(is_gone(int(pid)) for pid in left)


async def test_a_command_that_is_asked_to_end_may_tidy_up(tmp_path: Path) -> None:
    ready, tidied = tmp_path / "ready", tmp_path / "tidied"
    code = (
        "import signal, sys, time\n"
        f"def tidy(*_): open({str(tidied)!r}, 'w').close(); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, tidy)\n"
        f"open({str(ready)!r}, 'w').close()\n"
        "time.sleep(600)\n"
    )
    job = a_job(Command(argv=(PYTHON, "-c", code)))

    async def stop(runner: Any) -> None:
        await until(ready.exists)
        job.cancelled.set(Why.TIMED_OUT)
        runner.stop(job)

    assert await outcomes([job], during=stop) == [TimedOut()]
    assert tidied.exists()


def test_a_program_that_left_a_process_in_another_session_is_reported_when_it_ends(tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    code = (
        "import os, subprocess, sys\n"
        "p = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"open({str(marker)!r}, 'w').write(str(p.pid))\n"
        "print('done'); sys.stdout.flush()\n"
        "sys.exit(int(sys.argv[1]))\n"
    )
    try:
        assert python(code, "0")["stdout"] == "done\n"
        os.kill(int(marker.read_text()), signal.SIGKILL)
        outcome = python(code, "3")
        assert isinstance(outcome, Failed)
        assert outcome.error == "exit status 3: done"
    finally:
        os.kill(int(marker.read_text()), signal.SIGKILL)


# -- secrets -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"argv": ("no-such-program", "CANARY")}, "No such file or directory"),
        ({"argv": ("/dev/null", "CANARY"), "env": {"KEY": "CANARY"}}, "Permission denied"),
        ({"argv": ("true", "CANARY\x00")}, "hold a NUL character or broken text"),
        ({"argv": ("true",), "env": {"KEY": "CANARY\x00"}}, "hold a NUL character or broken text"),
        ({"argv": ("true",), "cwd": "/no/CANARY"}, "its directory does not exist"),
        ({"argv": ("true",), "cwd": "/dev/null/CANARY"}, "its directory does not exist"),
        ({"argv": ("true",), "cwd": "CANARY\x00"}, "hold a NUL character or broken text"),
        ({"argv": ("true", "CANARY" * 50_000)}, "Argument list too long"),
    ],
)
def test_a_command_that_cannot_start_names_its_program_and_none_of_its_texts(fields: dict[str, Any], said: str) -> None:
    argv = fields.pop("argv")
    outcome = run(*argv, **fields)
    assert isinstance(outcome, Failed)
    assert (outcome.category, outcome.final) == (Category.VALIDATION, True)
    assert outcome.error.startswith(f"the command {argv[0]!r} cannot be started: ")
    assert said in outcome.error
    assert "CANARY" not in outcome.error


def test_a_program_that_quotes_its_secrets_does_not_get_them_recorded() -> None:
    code = (
        "import os, sys\n"
        "sys.stderr.write(' '.join(['bad:', os.environ['API_TOKEN'], sys.argv[2], sys.argv[3]]))\n"
        "sys.exit(os.environ['STEPKEEP_COMPLETION_TOKEN'])\n"
    )
    job = a_job(
        Command(
            argv=(PYTHON, "-c", code, "--password", "CANARY-2", "--secret=CANARY-3"), env={"API_TOKEN": "CANARY-1"}
        ),
        completion=Completion.MANUAL,
    )
    job.completion_token = "CANARY-4"
    outcome = outcome_of(job)
    assert isinstance(outcome, Failed)
    assert outcome.error == "exit status 1: bad: *** *** --secret=******"


def test_a_directory_that_is_no_text_fails_for_good() -> None:
    outcome = run("true", cwd="${{ input.where }}", given={"where": 5})
    assert isinstance(outcome, Failed)
    assert (outcome.category, outcome.final) == (Category.VALIDATION, True)
    assert "cwd" in outcome.error


# -- policies ----------------------------------------------------------------------------------------------------------
def allowing(*programs: str) -> Settings:
    return Settings(commands=CommandPolicy(programs=programs))


def test_only_listed_programs_run() -> None:
    assert run("true", settings=allowing("true", "cat"))["exit_code"] == 0
    assert run(str(shutil.which("true")), settings=allowing("true"))["exit_code"] == 0
    assert run("true", settings=allowing(str(shutil.which("true"))))["exit_code"] == 0
    for program in ("false", "sh", "/usr/bin/../bin/true", "./true", "bin/true", "TRUE", "", "true "):
        outcome = run(program, settings=allowing("true"))
        assert isinstance(outcome, Failed)
        assert (outcome.category, outcome.final) == (Category.GOVERNANCE, True)


def test_a_step_cannot_put_another_program_in_the_place_of_a_listed_one(tmp_path: Path) -> None:
    evil = tmp_path / "true"
    evil.write_text("#!/bin/sh\necho evil\n")
    evil.chmod(0o755)
    assert run("true", env={"PATH": str(tmp_path)})["stdout"] == "evil\n"
    found = run("true", env={"PATH": str(tmp_path)}, cwd=str(tmp_path), settings=allowing("true"))
    assert found["stdout"] == ""
    outcome = run("true", env={"LD_PRELOAD": str(evil)}, settings=allowing("true"))
    assert isinstance(outcome, Failed)
    assert outcome.category is Category.GOVERNANCE
    assert "LD_PRELOAD" in outcome.error


def test_a_program_that_is_not_there_cannot_be_allowed() -> None:
    for program in ("no-such-program", "./true", ""):
        with pytest.raises(InvalidInput, match="cannot be allowed"):
            run("true", settings=allowing(program))


def test_variables_are_passed_on_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGION", "north")
    monkeypatch.setenv("DATABASE_PASSWORD", "secret")
    code = "import os, json; print(json.dumps(sorted(os.environ)))"
    found = python(code, settings=Settings(commands=CommandPolicy(environment=("REGION", "UNSET"))))["json"]
    assert "REGION" in found
    assert "DATABASE_PASSWORD" not in found
    assert "REGION" not in python(code)["json"]
