"""Runs commands on fixed runs in a new folder and writes their JSON, without what differs each time.

Ids, moments, spans, hashes, addresses and secrets become placeholders. An id has a number, so that the same run is
recognised. A command that no line of `STORY` gives is named in `ELSEWHERE` with the reason, or `answers` refuses.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import typer.main

from stepkeep.kernel.errors import InvalidInput

FILES = {
    "handlers.py": """
import stepkeep as sk

@sk.step("golden.work", effect="write", undo="golden.undo")
def work(ctx: sk.Context):
    return {"did": ctx.step}

@sk.step("golden.undo")
def undo():
    return None

@sk.step("golden.refuse")
def refuse():
    raise sk.fail("it cannot be done", category="validation")
""",
    "flow.yaml": """
workflow: flow
timeout: 1h
steps:
  - {name: first, uses: golden.work, timeout: 5s}
  - {name: second, uses: golden.work, timeout: 5s}
""",
    "flow2.yaml": """
workflow: flow
version: 2
timeout: 1h
steps:
  - {name: first, uses: golden.work, timeout: 5s}
  - {name: second, uses: golden.work, timeout: 6s}
""",
    "gated.yaml": """
workflow: gated
timeout: 1h
steps:
  - {name: sign-off, approval: {deadline: 1h, roles: [finance]}}
  - {name: publish, uses: golden.work, timeout: 5s}
""",
    "undone.yaml": """
workflow: undone
timeout: 1h
on_failure: compensate
steps:
  - {name: make, uses: golden.work, timeout: 5s}
  - {name: refuse, uses: golden.refuse, timeout: 5s}
""",
    "manual.yaml": """
workflow: manual
timeout: 1h
steps:
  - {name: by-hand, uses: golden.work, timeout: 5s, completion: {mode: manual, deadline: 1h}}
""",
    "waiting.yaml": """
workflow: waiting
timeout: 1h
steps:
  - {name: payment, wait: {event: paid, deadline: 1h}}
""",
    "stuck.yaml": """
workflow: stuck
timeout: 1h
steps:
  - {name: one, uses: golden.absent, timeout: 5s}
""",
    "stuck2.yaml": """
workflow: stuck
version: 2
timeout: 1h
steps:
  - {name: one, uses: golden.absent, timeout: 6s}
""",
    "policy.yaml": """
policy: careful
rules:
  - {name: never, when: "step.name == 'nothing'", then: deny, reason: not now}
""",
    "hook.yaml": """
hook: incoming
scheme: standard
secrets: [BILLING]
message: {name: "${{ body.type }}", key: "${{ body.order }}", payload: "${{ body }}"}
""",
    "delivery.json": '{"headers": {}, "body": "{}"}',
    "amount.json": '{"type": "object", "properties": {"amount": {"type": "integer"}}}',
}

STORY = """
dialects
check flow.yaml --app handlers.py
simulate undone.yaml --app handlers.py
users create ann
users create bea
users create cyd --service
users grant ann --role finance
users grant bea --role finance
users revoke bea --role finance
users list
users show ann
users disable cyd
users enable cyd
users history
keys create ann --scope read --scope decide > key
keys list
keys rotate $key > key2
keys revoke $key2
tenants create golden
tenants set golden --vouching refused
tenants quotas golden --limit max_triggers=5
tenants signing golden --secret PAYMENTS
tenants list
schemas publish amount.json --ref amount
schemas list
schemas show amount
policies test policy.yaml
policies publish policy.yaml
policies list
policies show
publish flow.yaml --app handlers.py
publish gated.yaml --app handlers.py
publish stuck.yaml --handlers-elsewhere
publish waiting.yaml
definitions
run flow.yaml --app handlers.py > flow
rerun $flow --app handlers.py
publish flow2.yaml --app handlers.py
diff flow@1 flow@2
withdraw flow 2 --reason wrong
restore flow 2
start gated.yaml --app handlers.py > gated
approvals
explain $gated
annotate $gated "looked at it" --by bea
reject $gated sign-off --by ann --comment no
start gated > gated2
request-changes $gated2 --by ann --comment more
approve $gated2 sign-off --by ann
start gated > gated3
escalate $gated3 --by ann --reason late
reassign $gated3 sign-off --by bea --to bea --reason absent
delegate bea ann --by bea --open-ended
run undone.yaml --app handlers.py > undone
show $undone
show $undone --as action
streams list $flow
streams read $flow log
tail $flow
retry $undone --dry-run
fork $undone --from refuse --dry-run
rollback-preview $gated2
certify $undone
evidence $undone --output pack.zip
policies replay $undone
start manual.yaml --app handlers.py > manual
token $manual by-hand --reason lost
complete $manual by-hand --outcome succeeded --by ann --token unknown
start waiting > waiting
send $waiting paid --payload {}
start stuck > stuck
explain $stuck
publish stuck2.yaml --handlers-elsewhere
migrate $stuck --to 2 --dry-run
decide $stuck one skip --by ann --reason nothing
start stuck > stuck2
pause $stuck2 --by ann --reason later
resume $stuck2 --by ann
quarantine $stuck2 --reason look
freeze $gated3 --reason look
start waiting > waiting2
wait $waiting2 --timeout 0.1
cancel $waiting2 --by ann
runs
runs --state failed
status
workers
slots set 5 --workflow flow
slots list
call
call slots.list
slots clear --workflow flow
resources set gpu 2
resources list
resources clear gpu
limits set api --running 2
limits set api --rate 100/1m --burst 20 --for acme --reason "a good customer"
limits list
limits show api
limits clear api --for acme
limits clear api
network allow 127.0.0.1
network list
network remove 127.0.0.1
hooks add hook.yaml
hooks list
hooks test incoming delivery.json
hooks remove incoming
mailbox list
mailbox drop order-1
sinks add lines --kind jsonl --option path=<folder>/events.jsonl
sinks list
sinks test lines
outbox list
outbox status
outbox show $undone lines
outbox redrive --sink lines --reason again
outbox drop $undone lines 1.0 --reason none
outbox history
sinks remove lines
triggers add nightly waiting --cron "0 3 * * *"
triggers list
triggers show nightly
triggers next nightly
triggers pause nightly
triggers resume nightly
triggers fire nightly
triggers backfill nightly --since 2026-01-01T00:00:00Z --until 2026-01-03T00:00:00Z --dry-run
triggers remove nightly
emit order.paid --payload {}
jobs start cancel --workflow stuck --dry-run
jobs start cancel --workflow stuck > job
jobs list
jobs show $job
jobs stop $job
log export $undone --output log.jsonl
log verify log.jsonl
archive $undone --to archived
prune --older-than 1d --dry-run
policies off
audit
profile add here --db sqlite:///.stepkeep/stepkeep.db
profile add far --server https://flows.example.org --key-file far.key
profile add far --server flows.example.org --replace
profile list
profile show far
profile use here
runs --limit 1
runs --limit 1 --server https://flows.example.org
prune --dry-run --profile far
profile use --none
profile remove far
db status
db maintain
db backup copy.db
db migrate
"""
"""One command a line; `> NAME` keeps the first id of its answer, `$NAME` gives it."""

ELSEWHERE = {
    "demo": "its text is a picture that has tests of its own",
    "worker": "it runs until it is stopped",
    "serve": "it runs until it is stopped",
    "dev": "it runs until it is stopped",
    "mcp": "it speaks a protocol on its standard streams",
    "completion": "it prints the script of the shell's own",
    "bench": "part of the laboratory",
    "lab": "part of the laboratory",
    "state": "it writes files, which have tests of their own",
    "db grants": "the document grants.sql has it",
    "statistics": "it counts by spans of time and orders by durations; its operation has tests of its own",
}

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{16}\b")
PATTERNS = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?"), "<moment>"),
    (re.compile(r"\b[0-9a-f]{32,}\b"), "<hash>"),
    (re.compile(r"\bsk_[A-Za-z0-9_-]+"), "<secret>"),
    (re.compile(r"[A-Za-z0-9_-]{40,}"), "<token>"),
    (re.compile(r"\b\d+(\.\d+)? ?(ms|s|min|h|d)\b"), "<span>"),
)
VARYING = re.compile(
    r"(^|_)(id|pid|host|address|seconds|ms|us|bytes|size|took|lag|age|usage|memory|cursor|position|next)$"
)


def program() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with the words that lead to it."""
    from stepkeep.cli.main import app

    yield from _under((), typer.main.get_command(app))


def _under(path: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name, one in inner.items():
        yield from _under((*path, name), one)


def answers() -> str:
    """What each line of the story answers."""
    lines = [line for line in STORY.splitlines() if line]
    _require_all(lines)
    here = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="golden-") as folder, _alone(folder):
        for name, text in FILES.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        os.chdir(folder)
        try:
            return "".join(_told(lines, folder))
        finally:
            os.chdir(here)
            sys.modules.pop("handlers", None)


def _alone(folder: str) -> AbstractContextManager[Any]:
    """An environment without the settings, the name and the home of whoever records."""
    return patch.dict(os.environ, {"PATH": os.environ["PATH"], "LOGNAME": "operator", "HOME": folder}, clear=True)


def _told(lines: list[str], folder: str) -> Iterator[str]:
    from stepkeep.cli.main import main

    kept: dict[str, str] = {}
    ids: dict[str, str] = {}
    for line in lines:
        command, _, name = line.partition(" > ")
        given = shlex.split(command.replace("<folder>", folder))
        words = [kept.get(word[1:], word) if word.startswith("$") else word for word in given]
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main((*words, "--json"))
        said = out.getvalue()
        if name:
            found = UUID.search(said) or re.search(r'"id": ?"([^"]+)"', said)
            kept[name] = "nothing" if found is None else found.group(found.lastindex or 0)
        yield f"$ stepkeep {command}\n"
        yield f"status {status}\n{_plain(said, folder, ids)}{_plain(err.getvalue(), folder, ids)}\n"


def _plain(said: str, folder: str, ids: dict[str, str]) -> str:
    try:
        value = json.loads(said)
    except ValueError:
        return "".join(f"{_text(line, folder, ids)}\n" for line in said.splitlines() if line.strip())
    return json.dumps(_value(value, folder, ids), indent=1, sort_keys=True) + "\n"


def _value(value: Any, folder: str, ids: dict[str, str], name: str = "") -> Any:
    if isinstance(value, dict):
        return {_text(key, folder, ids): _value(one, folder, ids, key) for key, one in value.items()}
    if isinstance(value, list):
        return [_value(one, folder, ids, name) for one in value]
    if isinstance(value, str):
        return _text(value, folder, ids)
    if isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool) and VARYING.search(name)):
        return "<number>"
    return "<number>" if isinstance(value, int) and abs(value) > 10**9 else value


def _text(text: str, folder: str, ids: dict[str, str]) -> str:
    text = text.replace(folder, "<folder>")
    text = UUID.sub(lambda found: ids.setdefault(found[0], f"<id {len(ids) + 1}>"), text)
    for pattern, instead in PATTERNS:
        text = pattern.sub(instead, text)
    return re.sub(r"\b(golden-\w+|[\w.-]+):\d{2,}:[0-9a-f]+\b", "<worker>", text)


def _require_all(lines: list[str]) -> None:
    told = [line.split() for line in lines]
    for path, _ in program():
        elsewhere = any(" ".join(path[:count]) in ELSEWHERE for count in range(1, len(path) + 1))
        if not elsewhere and not any(tuple(words[: len(path)]) == path for words in told):
            raise InvalidInput(f"no line of the story gives `stepkeep {' '.join(path)}`: add one, or say why not.")
