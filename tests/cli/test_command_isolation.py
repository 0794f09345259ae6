"""What a command can see of the program that started it: what it was given, and nothing else. Really run."""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import stepkeep as sk

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc and its rights are those of Linux")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root starts programs as another user")
NOBODY = 65534
LAST_CAPABILITY = 40
PR_CAPBSET_DROP = 24

# Its own arguments do not match the expression; its environment holds no canary.
SEARCH = "grep -la '[C]ANARY-' /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null; true"
LOOK = """
for file in environ maps mem auxv; do
  if (: < /proc/$PPID/$file) 2>/dev/null; then echo "opens $file"; fi
done
for link in fd/0 cwd exe root; do
  if readlink /proc/$PPID/$link >/dev/null; then echo "follows $link"; fi
done
kill -0 $PPID 2>/dev/null && echo signals
true
"""
HELD = """
import os, time
from pathlib import Path
import stepkeep as sk

@sk.step("isolation.held", mode="process")
def held(folder: str) -> str:
    Path(folder, "held").write_text(str(os.getpid()))
    while not Path(folder, "seen").exists():
        time.sleep(0.02)
    return os.environ["REGION"] + " " + os.environ.get("STEPKEEP_SECRET_PAY", "no secret")
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user may enter, as a worker's folder is by default."""
    folder = Path(tempfile.mkdtemp(prefix="stepkeep-isolation-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


class Program:
    """Starts `stepkeep` in a folder, with secrets in its environment, and as a user without privileges if asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.canary = f"CANARY-{secrets.token_hex(8)}"
        self.started: list[subprocess.Popen[str]] = []

    def __call__(self, *arguments: str, powerless: bool = False, **variables: str) -> subprocess.Popen[str]:
        environment = {
            "PATH": os.environ["PATH"],
            "STEPKEEP_DB": f"sqlite:///{self.folder}/app.db",
            "STEPKEEP_SECRET_PAY": self.canary,
            "AWS_SECRET_ACCESS_KEY": self.canary,
            "REGION": "north",
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            **variables,
        }
        child = subprocess.Popen(
            [sys.executable, "-m", "stepkeep", *arguments],
            env=environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=without_capabilities if powerless else None,
        )
        self.started.append(child)
        return child

    def says(self, *arguments: str, status: int = 0, **options: Any) -> Any:
        """The JSON that a command prints."""
        out, err = self(*arguments, "--json", **options).communicate(timeout=120)
        assert self.started[-1].returncode == status, (out, err)
        assert "Traceback" not in err, err
        return json.loads(out)

    def write(self, name: str, *steps: dict[str, Any], **fields: Any) -> str:
        (self.folder / name).write_text(
            yaml.safe_dump({"workflow": Path(name).stem, "timeout": "2m", "steps": list(steps), **fields})
        )
        return name

    def start(self, file: str) -> str:
        with self.engine() as engine:
            return str(engine.start(engine.publish(self.folder / file)).run_id)

    def output(self, run_id: str) -> Any:
        """What a run that others execute ends with. Looked up in this process, whose environment has no canary."""
        with self.engine() as engine:
            result = engine.wait(run_id, seconds=120)
        assert result.state == "succeeded", result
        return result.output

    def serve(self, run_id: str, *arguments: str, **options: Any) -> Any:
        """What a worker with these arguments makes of a run."""
        worker = self("worker", *arguments, **options)
        found = self.output(run_id)
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=60)
        return found

    def engine(self) -> sk.Engine:
        return sk.open(f"sqlite:///{self.folder}/app.db")


def without_capabilities() -> None:
    """What is executed next has no privilege, also as root: an ordinary user who owns root's files."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None)
        for number in range(LAST_CAPABILITY + 1):
            libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)


@pytest.fixture
def program(place: Path) -> Iterator[Program]:
    found = Program(place)
    yield found
    for child in found.started:
        if child.poll() is None:
            child.kill()
        child.communicate()


def shell(name: str, script: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "command": {"argv": ["sh", "-c", script]}, **fields}


# -- the environment ---------------------------------------------------------------------------------------------------
Executed = Callable[[Program, str], Any]
HOWS: dict[str, Executed] = {
    "run": lambda program, file: program.says("run", file)["run"]["output"],
    "worker": lambda program, file: program.serve(program.start(file)),
}


@pytest.mark.parametrize("how", ["run", "worker"])
def test_no_secret_of_the_program_is_in_any_environment_or_argument_that_a_command_finds(
    program: Program, how: str
) -> None:
    file = program.write("look.yaml", shell("look", SEARCH))
    assert HOWS[how](program, file)["stdout"] == ""


def test_a_step_still_gets_the_secret_that_it_names(program: Program) -> None:
    step = shell("use", 'printf %s "$TOKEN" | wc -c')
    step["command"]["env"] = {"TOKEN": "${{ secret.PAY }}"}
    found = program.says("run", program.write("use.yaml", step))["run"]["output"]["stdout"]
    assert int(found) == len(program.canary)


def test_processes_of_handlers_show_no_secret_and_have_the_variables_of_the_worker(program: Program) -> None:
    (program.folder / "held.py").write_text(HELD)
    wait = f"while [ ! -e {program.folder}/held ]; do sleep 0.05; done"
    steps = (
        {"name": "held", "uses": "isolation.held", "with": {"folder": str(program.folder)}, "depends_on": []},
        shell("look", f"{wait}; {SEARCH}; touch {program.folder}/seen", depends_on=[]),
    )
    output = "${{ {'held': steps.held.output, 'look': steps.look.output.stdout} }}"
    file = program.write("held.yaml", *steps, output=output)
    found = program.says("run", file, "--app", "held.py")["run"]["output"]
    assert found == {"held": "north no secret", "look": ""}


def test_dev_shows_no_secret_either(program: Program) -> None:
    dev = program("dev", "--port", "0", "--no-open", "--no-tour")
    assert dev.stdout is not None
    assert "listens" in dev.stdout.readline()
    run = program.start(program.write("look.yaml", shell("look", SEARCH)))
    assert program.output(run)["stdout"] == ""


def test_the_password_of_a_database_is_taken_out_of_the_arguments(program: Program) -> None:
    worker = program("worker", "--db", f"postgresql://ann:{program.canary}@127.0.0.1:1/none", STEPKEEP_DB="")
    assert worker.stderr is not None
    assert "trying again" in worker.stderr.readline()
    shown = Path(f"/proc/{worker.pid}/cmdline").read_bytes()
    assert program.canary.encode() not in shown
    assert b"ann:" + b"*" * len(program.canary) + b"@127.0.0.1" in shown


# -- memory and files --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("command", ["run", "worker"])
def test_a_command_of_the_same_user_reads_neither_memory_nor_environment_nor_files_of_the_worker(
    program: Program, command: str
) -> None:
    file = program.write("look.yaml", shell("look", LOOK))
    if command == "run":
        found = program.says("run", file, powerless=True)["run"]["output"]
    else:
        found = program.serve(program.start(file), powerless=True)
    assert found["stdout"] == "signals\n", "the same user may send signals, and read nothing"


def test_a_command_gets_a_short_environment_three_descriptors_and_a_session_of_its_own(program: Program) -> None:
    script = "env | cut -d= -f1 | sort; ls /proc/self/fd | wc -l; cut -d' ' -f6 /proc/$$/stat; echo $$"
    lines = program.says("run", program.write("given.yaml", shell("look", script)), HOME="/", LC_ALL="C")
    found = lines["run"]["output"]["stdout"].split()
    names, (open_files, session, own) = found[:-3], found[-3:]
    ours = {"STEPKEEP_ATTEMPT", "STEPKEEP_IDEMPOTENCY_KEY", "STEPKEEP_RUN_ID", "STEPKEEP_STEP"}
    assert set(names) - {"PWD", "OLDPWD", "SHLVL", "_"} == {"HOME", "LC_ALL", "PATH"} | ours
    assert int(open_files) == 4, "the three pipes, and the one with which ls reads the folder"
    assert session == own


# -- another user ------------------------------------------------------------------------------------------------------
@needs_root
def test_commands_as_another_user_read_neither_the_database_nor_the_worker(program: Program) -> None:
    marks = program.folder / "marks"
    marks.mkdir()
    marks.chmod(0o777)
    script = f"""
        id -u; id -g; id -G; echo $HOME $USER
        cat {program.folder}/app.db >/dev/null 2>&1 && echo "reads the database"
        touch mine && stat -c %u mine; ls | wc -l
        {LOOK}
    """
    steps = (shell("look", script, post=[{"command": ["sh", "-c", f"id -u > {marks}/rule"]}]),)
    hooks = [{"on": ["run.succeeded"], "command": {"argv": ["sh", "-c", f"id -u > {marks}/hook"]}}]
    run = program.start(program.write("look.yaml", *steps, hooks=hooks))
    found = program.serve(run, "--commands-as", "nobody")["stdout"].splitlines()
    assert found == [str(NOBODY), "65534", "65534", "/nonexistent nobody", str(NOBODY), "1"]
    assert {one.name: one.read_text() for one in marks.iterdir()} == dict.fromkeys(("rule", "hook"), f"{NOBODY}\n")


@needs_root
def test_a_database_that_the_user_of_commands_could_read_is_refused(program: Program) -> None:
    program.start(program.write("look.yaml", shell("look", "true")))
    (program.folder / "app.db").chmod(0o644)
    out, err = program("worker", "--commands-as", "nobody").communicate(timeout=60)
    assert program.started[-1].returncode == 2, out
    assert f"chmod 600 {program.folder}/app.db" in err


@needs_root
@pytest.mark.parametrize("user", ["no-such-user", "-5", "99999999999"])
def test_a_user_that_does_not_exist_is_usage(program: Program, user: str) -> None:
    file = program.write("look.yaml", shell("look", "true"))
    assert "no such user" in program.says("run", file, f"--commands-as={user}", status=2)["error"]["message"]
