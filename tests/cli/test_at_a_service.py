"""Every command that is an operation gives the same answer at a database and at a service, byte for byte."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import unified_diff
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import stepkeep as sk
from stepkeep.cli.main import app
from stepkeep.edges.redaction import database_url
from stepkeep.network.signatures import write_key
from stepkeep.operations.access import Scope
from tests.cli.conftest import HANDLERS, Cli, Said
from tests.cli.surface import commands
from tests.processes import Fleet

TWIN = "twin"
SECRET = write_key(b"k" * 24)
FILES = {
    "report.yaml": "workflow: report\nversion: 1\nsteps: [{name: a, command: [echo, hi]}]\n",
    "report2.yaml": "workflow: report\nversion: 2\nsteps: [{name: a, command: [echo, ho]}]\n",
    "policy.yaml": "policy: p\nrules: [{name: closed, then: deny, workflows: [nothing]}]\n",
    "schema.json": '{"type": "object"}',
    "hook.yaml": "{hook: billing, scheme: standard, secrets: [BILLING], message: {name: paid, key: '${{ body.o }}'}}",
    "flaky.yaml": "workflow: flaky\nsteps: [{name: flaky, uses: cli.flaky, retry: {max_attempts: 3, initial: 1ms}}]\n",
    "held.yaml": "workflow: held\nsteps: [{name: refuse, uses: cli.refuse, timeout: 5s, on_exhausted: hold}]\n",
    "told.yaml": "workflow: told\nsteps: [{name: a, uses: outbox_cli.tell}]\n",
    "late.yaml": """
workflow: late
steps: [{name: sign-off, approval: {approvers: [bo], deadline: 1h, escalate: [{approvers: [cy], deadline: 1h}]}}]
""",
    "lone.yaml": "workflow: lone\nsteps: [{name: sign-off, approval: {approvers: [nobody], deadline: 1h}}]\n",
    "delivery.json": '{"headers": {}, "body": "{}"}',
    "parcel.yaml": "workflow: parcel\nsteps: [{name: payment, wait: {event: paid}}]\n",
}
WRITES = [
    "publish report.yaml",
    "publish report2.yaml",
    "withdraw report 1 --reason old",
    "restore report 1",
    "schemas publish schema.json --ref acme/order",
    "policies publish policy.yaml",
    "policies off",
    "start report.yaml --handlers-elsewhere --label team=a --correlation-id c-1",
    "start report --idle --idempotency-key k-1",
    "start report --idle --idempotency-key k-1",
    "start --run {idle}",
    "rerun {done} --no-wait",
    "rerun {failed} --no-wait --idempotency-key r-1 --input {{}}",
    "rerun {done} --no-wait --from second",
    "retry {failed} --no-wait",
    "fork {done} --from second --no-wait --input {{}}",
    "approve {gated} sign-off --comment fine --evidence a",
    "reject {gate2} sign-off --comment no",
    "request-changes {gate3} --comment more",
    "annotate {gate3} note",
    "pause {gate3} --reason r",
    "resume {gate3}",
    "freeze {gate3} --reason r",
    "cancel {gate3} --reason r",
    "escalate {late} sign-off --reason r",
    "reassign {lone} sign-off --to cleo --reason r",
    "complete {manual} by-hand --token {token}",
    "token {manual2} by-hand --reason lost",
    "decide {held} refuse skip --reason r",
    "send {waiting} paid --payload 3 --id m-1",
    "send {waiting} paid --payload 3 --id m-1",
    "send --business-key order-1 paid --id m-2",
    "send --business-key order-9 paid --id m-3 --start parcel.yaml",
    "mailbox drop order-1",
    "send --business-key order-2 paid --id m-4",
    "quarantine {failed} --reason odd",
    "quarantine --release {failed} --reason fine",
    "quarantine {failed} --reason odd",
    "pause --queue q --reason r",
    "pause --workflow report",
    "resume --workflow report",
    "pause --all",
    "resume --all",
    "users create bea --display Bea",
    "users create robot --service",
    "users grant bea --role finance",
    "users revoke bea --role finance",
    "users grant bea --group staff",
    "users disable robot",
    "users enable robot",
    "delegate bea cleo --open-ended --reason away",
    "delegate bea cleo --end",
    "keys create bea --scope read --expires 2100-01-01T00:00Z",
    "keys rotate {key2} --overlap 1h",
    "keys revoke {key3}",
    "tenants create {tenant}",
    "tenants set {tenant} --vouching allowed",
    "tenants signing {tenant} --secret HOOK",
    "slots set 5 --workflow report",
    "slots clear --workflow report",
    "slots set 4",
    "limits set api --running 2",
    "limits clear api",
    "limits set api --running 3 --for acme",
    "resources set cpu 3",
    "resources clear cpu",
    "resources set cpu 4",
    "hooks add hook.yaml",
    "hooks test billing delivery.json",
    "triggers add often report --every 1h --overlap allow",
    "triggers add paid report --event order.paid",
    "triggers pause often",
    "triggers resume often",
    "triggers fire often --idempotency-key f-1",
    "triggers backfill often --since 2026-03-01T00:00Z --until 2026-03-02T00:00Z --dry-run",
    "triggers backfill often --since 2026-03-01T00:00Z --until 2026-03-02T00:00Z",
    "emit order.paid --payload {{}} --id e-1",
    "triggers add gone report --event gone",
    "triggers remove gone",
    "sinks add mine --kind host",
    "sinks test mine",
    "sinks test absent",
    "sinks add theirs --kind webhook --option url=https://example.org/x",
    "sinks remove theirs",
    "outbox redrive --sink events --reason r",
    "outbox drop {told} events {told}/3/0 --reason r",
    "jobs start cancel --workflow report --dry-run",
    "jobs start pause --workflow report --idempotency-key j-1",
    "jobs stop {job}",
    "migrate {old} --to 2",
    "migrate {old2} --to 2 --dry-run",
    "migrate --all report --to 2 --dry-run",
    "migrate --all report --to 2",
    "hooks remove billing",
    "hooks add hook.yaml",
    "call slots.set most=3",
    # What is refused is refused in the same words.
    "approve {gated} sign-off",
    "show nowhere",
    "cancel {done}",
    "publish missing.yaml",
    "users show nobody",
    "slots set 0",
    "triggers show nowhere",
    "keys revoke nothing",
    "decide {done} first skip --reason r",
    "explain nowhere",
    "runs --state happy",
    "send {waiting} paid --payload [",
]
READS = [
    "runs",
    "runs --workflow flow --limit 1",
    "runs c-1 --all",
    "runs --as run",
    "runs --label team=a",
    "show {done}",
    "show {failed}",
    "show {gated}",
    "show {gate2}",
    "show {waiting}",
    "show {manual2}",
    "show {done} --as run",
    "show {done} --step first",
    "streams list {done}",
    "streams read {done} log",
    "tail {done}",
    "show {done} --at 3",
    "explain {gated}",
    "explain {done}",
    "explain {gate4}",
    "explain {gate4} sign-off",
    "explain {manual2}",
    "explain {failed}",
    "status",
    "wait {done}",
    "wait {gate4} --until-blocked",
    "certify {done}",
    "definitions",
    "definitions report",
    "diff report@1 report@2",
    "diff report@1 report@2 --live",
    "diff {done} {failed}",
    "diff {flaky} --step flaky",
    "workers",
    "workers --all",
    "audit --operation approve",
    "audit bea --limit 2",
    "approvals",
    "approvals --mine --limit 1",
    "rollback-preview {undone}",
    "rollback-preview {gate4}",
    "quarantine --list",
    "quarantine --list --history",
    "users list",
    "users show bea",
    "users history",
    "users history bea",
    "delegate --list",
    "keys list",
    "keys list --owner ann",
    "tenants list",
    "tenants quotas {tenant}",
    "tenants signing {tenant}",
    "hooks list",
    "network list",
    "network list --history",
    "slots list",
    "limits list",
    "limits show api",
    "resources list",
    "jobs list",
    "jobs show {job}",
    "schemas list",
    "schemas show acme/order",
    "policies list",
    "policies show",
    "policies show 1",
    "policies replay {done}",
    "mailbox list",
    "mailbox list order-2",
    "sinks list",
    "outbox list",
    "outbox list --sink events --limit 1",
    "outbox show {told} events",
    "outbox status",
    "outbox history",
    "triggers list",
    "triggers show often",
    "triggers next often --after 2026-12-01T00:00Z",
    "call slots.list",
    "call pauses.list",
    "retry {failed2} --dry-run",
    "fork {done} --from second --dry-run",
    "log export {done} --output {out}",
    "evidence {done} --output {out} --without-payloads",
]
ELSEWHERE = {
    **dict.fromkeys(("run", "serve", "dev", "archive", "prune", "network allow", "network remove"), "the database"),
    "state export": "the database",
    **dict.fromkeys((f"db {word}" for word in ("migrate", "status", "maintain", "backup", "grants")), "the database"),
    **dict.fromkeys(("check", "simulate", "demo", "dialects", "completion", "log verify", "policies test"), "nothing"),
    **dict.fromkeys((f"profile {word}" for word in ("add", "list", "show", "use", "remove")), "nothing"),
    **dict.fromkeys(("worker", "mcp"), "tests/remote"),
    "statistics": "tests/cli/test_status.py",  # its spans of time begin with the question
}
"""Commands that are not compared, and what they need or where they are tested."""
BY_THE_CLOCK = ("status", "explain", "audit", "outbox")
"""Commands that say how long ago something was, or how much was looked at."""
TIMES = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)")
NAMES = re.compile(
    r"sk_[\w-]+|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b[0-9a-f]{12,64}\b|[\w-]{43}|run:[\w.:-]+|j?-?\b[0-9a-f]{8}\b"
)
CLOCKS = re.compile(r'"(\w+_seconds|checked|since|sentence|at)": .*')
"""What is counted anew with each question."""
GROWING = re.compile(r"[█▓░·]+( +[█▓░·]+)*|(\b\d+(\.\d+)?(ms|us|[smhd])\b ?)+")
"""The bar of a step, whose parts may change with the time of the question, and a duration, whose unit may."""


class World(NamedTuple):
    """A tenant with runs of each kind, and the key of a person who may do everything there."""

    tenant: str
    key: str
    names: dict[str, str]


class Shell:
    """Commands of one person, at the database or at the service, with variables that say where."""

    def __init__(self, cli: Cli, monkeypatch: pytest.MonkeyPatch, url: str, address: str) -> None:
        self._cli, self._monkeypatch, self._url, self._address = cli, monkeypatch, url, address

    def here(self, world: World, *words: str) -> Said:
        """At the database."""
        with self._variables(STEPKEEP_DB=self._url, STEPKEEP_KEY=world.key):
            return self._cli(*words, *(["--tenant", world.tenant] if world.tenant != "default" else []))

    def there(self, world: World, *words: str) -> Said:
        """At the service."""
        with self._variables(STEPKEEP_SERVER=self._address, STEPKEEP_KEY=world.key):
            return self._cli(*words)

    def in_words(self, said: Said) -> str:
        """What a command says to people, but for the place and how long ago something was."""
        Path("out.file").unlink(missing_ok=True)
        text = f"{said.status}\n{said.out}".replace(database_url(self._url), "PLACE").replace(self._address, "PLACE")
        return re.sub(r" +", " ", re.sub(r"\d+(\.\d+)?", "N", GROWING.sub("LENGTH", text)))

    @contextmanager
    def _variables(self, **given: str) -> Iterator[None]:
        with self._monkeypatch.context() as patch:
            for name, value in given.items():
                patch.setenv(name, value)
            yield


@pytest.fixture
def shell(cli: Cli, home: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    for name, text in FILES.items():
        (home / name).write_text(text)
    monkeypatch.setenv("STEPKEEP_SECRET_BILLING", SECRET)
    with Fleet(database_url, home, {"STEPKEEP_SECRET_BILLING": SECRET}) as fleet:
        _, address = fleet.serve("--db", database_url, "--port", "0", "--log-level", "error")
        yield Shell(cli, monkeypatch, database_url, address)


def world(shell: Shell, url: str, tenant: str) -> World:
    """A tenant with people, keys, and a run of each kind."""
    with sk.open(url, tenant=tenant, actor="root") as engine:
        for name in ("ann", "bo", "cleo"):
            engine.users.create(name)
        key = str(engine.keys.create("ann", scopes=[one.value for one in Scope]).secret)
    made, names = World(tenant, key, {}), {"tenant": tenant, "out": "out.file"}

    def run(name: str, *words: str) -> dict[str, Any]:
        said = shell.here(made, *words, "--json")
        assert said.out, (words, said.err)
        names[name] = said.json["run"]["id"]
        return said.json

    shell.here(made, "sinks", "add", "events", "--kind", "host")
    code = ("--app", HANDLERS)
    run("done", "run", "flow.yaml", *code)
    for name, file in (("failed", "failing"), ("failed2", "failing"), ("flaky", "flaky"), ("undone", "undone")):
        run(name, "run", f"{file}.yaml", *code)
    for name, file in (*((f"gate{n}", "gated") for n in ("d", 2, 3, 4)), ("held", "held")):
        run(name, "run", f"{file}.yaml", *code)
    names["gated"] = names["gated" if "gated" in names else "gate" + "d"]
    for name in ("manual", "manual2"):
        names["token"] = run(name, "run", "manual.yaml", *code)["run"]["waiting_for"][0]["token"]
        names.setdefault("first", names["token"])
    names["token"] = names["first"]
    run("told", "run", "told.yaml", "--app", str(Path(HANDLERS).with_name("outbox_app.py")))
    for name, file in (
        ("waiting", "waiting"),
        ("late", "late"),
        ("lone", "lone"),
        ("old", "report"),
        ("old2", "report"),
    ):
        run(name, "start", f"{file}.yaml", "--handlers-elsewhere", "--by", "cleo" if name == "late" else "bo")
    run("idle", "start", "report.yaml", "--handlers-elsewhere", "--idle")
    for name in ("key2", "key3"):
        names[name] = shell.here(made, "keys", "create", "cleo", "--scope", "read", "--json").json["key"]["id"]
    return World(tenant, key, names)


def in_full(said: Said) -> str:
    """What a command answered, byte for byte, with what it wrote."""
    written = Path("out.file")
    content = written.read_bytes().hex() if written.exists() else ""
    written.unlink(missing_ok=True)
    return f"{said.status}\n{said.out}{content}"


def answered(said: Said, tenant: str = "default") -> str:
    """What a command answered, with ids, keys and times by their order, so that two tenants compare.

    A service answers in the same words about everything that is not there.
    """
    seen: dict[str, str] = {}
    text = TIMES.sub("TIME", said.out).replace(f'"{tenant}"', '"default"')
    text = NAMES.sub(lambda found: seen.setdefault(found[0], f"ID{len(seen)}"), text)
    return f"{said.status}\n" + re.sub(r'("code": "not_found",\s+"message": ).*', r"\1…", text)


def words_of(line: str, world: World) -> list[str]:
    return [*(word.format(**world.names) for word in line.split(" ")), "--json"]


def test_every_command_answers_alike_at_a_database_and_at_a_service(shell: Shell, database_url: str) -> None:
    first, second = world(shell, database_url, "default"), world(shell, database_url, TWIN)
    for one in (first, second):  # when no command works any more: workers carry out jobs
        made = shell.here(one, "jobs", "start", "rerun", "--workflow", "failing", "--json").json
        one.names["job"] = made["job"]["job"]
    different = []
    for line in WRITES:
        here = answered(shell.here(first, *words_of(line, first)))
        there = answered(shell.there(second, *words_of(line, second)), TWIN)
        if here != there:
            different.append((line, here, there))
    for line in READS:
        here, there = (in_full(ask(first, *words_of(line, first))) for ask in (shell.here, shell.there))
        if line.split(" ")[0] in BY_THE_CLOCK:
            here, there = CLOCKS.sub(r'"\1": …', here), CLOCKS.sub(r'"\1": …', there)
        if here != there:
            different.append((line, here, there))
        here, there = (shell.in_words(ask(first, *words_of(line, first)[:-1])) for ask in (shell.here, shell.there))
        if here != there:
            different.append((f"{line}, in words", here, there))
    assert not different, "\n".join(f"== {line}\n{told(here, there)}" for line, here, there in different)


def told(here: str, there: str) -> str:
    """What differs, in a few lines."""
    lines = unified_diff(here.splitlines(), there.splitlines(), "database", "service", lineterm="", n=1)
    return "\n".join([*lines][2:30])


def test_every_command_is_compared_or_has_a_reason() -> None:
    known = {" ".join(path) for path, _ in commands(app)}
    compared = {
        next((name for name in known if line == name or line.startswith(f"{name} ")), line) for line in WRITES + READS
    }
    others = {name for name in known if name.startswith(("lab ", "bench"))}
    assert known - others == compared | set(ELSEWHERE)
    assert not compared & set(ELSEWHERE)


def test_an_operator_and_a_worker_need_a_profile_and_no_database(home: Path, database_url: str) -> None:
    """Real processes, which know the file of profiles and nothing else."""
    with sk.open(database_url, actor="root") as engine:
        engine.users.create("ann")
        engine.users.create("robot", kind="service")
        keys = {
            "ann": engine.keys.create("ann", scopes=["read", "start", "decide", "operate"])["secret"],
            "robot": engine.keys.create("robot", scopes=["work"])["secret"],
        }
    for name, key in keys.items():
        (home / f"{name}.key").write_text(f"{key}\n")
    ours = {"STEPKEEP_CONFIG": str(home / "profiles.toml")}

    def told(*words: str, status: int = 0) -> str:
        others = {name: value for name, value in os.environ.items() if not name.startswith("STEPKEEP_")}
        command = [sys.executable, "-m", "stepkeep", *words]
        ran = subprocess.run(command, capture_output=True, text=True, env={**others, **ours}, check=False, timeout=120)
        assert ran.returncode == status, (words, ran.stdout, ran.stderr)
        return ran.stdout

    with Fleet(database_url, home, ours) as fleet:
        _, address = fleet.serve("--db", database_url, "--port", "0", "--log-level", "error")
        told("profile", "add", "prod", "--server", address, "--key-file", "ann.key", "--use")
        told("profile", "add", "hub", "--server", address, "--key-file", "robot.key")
        run = json.loads(told("start", "gated.yaml", "--app", HANDLERS, "--json"))["run"]["id"]
        worker = fleet.start("-m", "stepkeep", "worker", "--profile", "hub", "--app", HANDLERS)
        worker.says("serves with")
        told("wait", run, "--until-blocked", "--timeout", "60", status=4)
        assert f"stepkeep approve {run} sign-off --profile prod\n" in told("explain", run, "--profile", "prod")
        assert f"stepkeep approve {run} sign-off\n" in told("explain", run[-8:])
        told("approve", run, "--comment", "fine")
        told("wait", run, "--timeout", "60")
        assert "succeeded" in told("show", run)
        assert json.loads(told("certify", run, "--json"))["ok"]
        told("db", "status", status=2)
    assert not (home / ".stepkeep").exists()
