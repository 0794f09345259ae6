"""Runs every command of the program on hostile text, in one process: `python -m tests.cli.hostile DIRECTORY PORT`.

The parent gives it pipes or a terminal as its streams and looks at what arrives there. Text comes from every place that
others write: handlers, servers, programs, definitions, people, file names, logs and arguments.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

HOSTILE = (
    "\x1b]0;PWNED\x07\x1b[2J\x1b[95;53m\rCR\x08\x7f\x9b31m\x9d\x85\u202eRLO\u2066\u200b\u2028\ufeff\U000e0041"
    "\nforged.yaml:1:1: no problems\tTAB"
)
FILE = "odd\x1b[2J\u202e\nforged.yaml:1:1: fine.yaml"
SCHEMA = f"postgresql://app@127.0.0.1:1/shop?schema={quote(HOSTILE)}"
UNKNOWN = "01890000-0000-7000-8000-000000000001"
MARK = "@@@"

APP = f"""
import gc, logging, threading, warnings
import stepkeep as sk

HOSTILE = {HOSTILE!r}

class Odd(Exception):
    def __str__(self): raise ValueError(HOSTILE)

class Broken:
    def __str__(self): raise SystemExit(HOSTILE)
    __repr__ = __str__
    def __del__(self): raise RuntimeError(HOSTILE)

def dies():
    raise RuntimeError(HOSTILE)

@sk.step("hostile.fail", retry=sk.Retry(max_attempts=1))
def fail():
    error = RuntimeError(HOSTILE)
    error.add_note(HOSTILE)
    raise error

@sk.step("hostile.again", retry=sk.Retry(max_attempts=2, initial="1ms"))
async def again():
    raise ConnectionError(HOSTILE)

@sk.step("hostile.odd", retry=sk.Retry(max_attempts=1))
def odd():
    raise Odd(HOSTILE)

@sk.step("hostile.output")
def output():
    return {{HOSTILE: [HOSTILE], "long": "x" * 200_000}}

@sk.step("hostile.speak")
def speak():
    log = logging.getLogger(HOSTILE)
    log.warning(HOSTILE)
    log.error("%s %d", HOSTILE, Broken())
    log.error(Broken())
    try:
        raise Odd(HOSTILE) from RuntimeError(HOSTILE)
    except Odd:
        log.exception("failed: %s", HOSTILE, stack_info=True)
    warnings.warn(HOSTILE)
    thread = threading.Thread(target=dies, name=HOSTILE)
    thread.start()
    thread.join()
    gc.collect()
"""


def flow(name: str, **step: Any) -> str:
    return json.dumps({"workflow": name, "timeout": "1h", "steps": [{"name": "only", "timeout": "20s", **step}]})


def waiting(name: str, **step: Any) -> str:
    return json.dumps({"workflow": name, "timeout": "1h", "steps": [{"name": "only", **step}]})


def write_files(port: int) -> None:
    Path("hostile_app.py").write_text(APP)
    Path("raising_app.py").write_text(f"raise RuntimeError({HOSTILE!r})\n")
    script = f"printf '%s' '{HOSTILE}' >&2; exit 3"
    request = {"url": f"http://127.0.0.1:{port}/x", "method": "GET"}
    flows = {
        "fail": flow("fail", uses="hostile.fail"),
        "again": flow("again", uses="hostile.again"),
        "odd": flow("odd", uses="hostile.odd"),
        "speak": flow("speak", uses="hostile.speak"),
        "output": flow("output", uses="hostile.output"),
        "http": flow("http", http=request, retry={"max_attempts": 1}),
        "command": flow("command", command={"argv": ["sh", "-c", script]}, retry={"max_attempts": 1}),
        "tolerant": flow("tolerant", uses="hostile.fail", on_failure="continue", description=HOSTILE),
        "gate": waiting("gate", approval={"prompt": HOSTILE, "roles": [HOSTILE], "deadline": "1h"}),
        "wait": waiting("wait", wait={"event": "paid", "deadline": "1h"}),
        "manual": flow("manual", uses="hostile.output", completion={"mode": "manual", "deadline": "1h"}),
    }
    for name, text in flows.items():
        Path(f"{name}.json").write_text(text)
    Path(FILE).write_text("workflow: odd\ntimeout: 1h\nsteps: [{name: a, uses: hostile.fail, timeout: 1s}]\n")
    bad: dict[str, Any] = {
        "workflow": HOSTILE,
        HOSTILE: HOSTILE,
        "labels": {HOSTILE: HOSTILE},
        "on_failure": HOSTILE,
        "input": {HOSTILE: HOSTILE},
        "steps": [
            {"name": HOSTILE, "uses": HOSTILE, "depends_on": [HOSTILE], "timeout": HOSTILE, HOSTILE: 1},
            {"name": "b", "wait": {"event": HOSTILE, "deadline": HOSTILE}},
            {"name": "c", "uses": "c", "with": {HOSTILE: "${{ " + HOSTILE + " }}"}, "if": f"input['{HOSTILE}']"},
            {"name": "d", "uses": "d", "effect": HOSTILE, "rules": [HOSTILE], "retry": {HOSTILE: HOSTILE}},
        ],
    }
    Path("bad.json").write_text(json.dumps(bad))
    for name in ("ioa", "action", "workstream", "run", "linear"):
        Path(f"bad-{name}.json").write_text(json.dumps({"dialect": name, **bad}))
    Path("bad.log").write_bytes(
        b"\x1b[2J\n"
        + json.dumps({"tenant": HOSTILE, "run_id": HOSTILE, "entity": HOSTILE, HOSTILE: 1}).encode()
        + b"\n"
    )


def identify(name: str, *more: str) -> str:
    """Make a run and return its id."""
    from stepkeep.cli.main import main

    with redirect_stdout(StringIO()) as said:
        main(["run", f"{name}.json", "--app", "hostile_app.py", "--http-allow", "127.0.0.1", "--json", *more])
    run: str = json.loads(said.getvalue())["run"]["id"]
    return run


def cases() -> dict[tuple[str, ...], list[list[str]]]:
    """For each command, what it is given. Texts that it shows come from the runs and files that were made before."""
    runs = {name: identify(name) for name in ("fail", "again", "output", "http", "command", "tolerant", "manual")}
    gates = [identify("gate") for _ in range(4)]
    wait, aside = identify("wait"), identify("wait")
    code = ["--app", "hostile_app.py"]
    plain: dict[tuple[str, ...], list[list[str]]] = {
        ("run",): [
            *([f"{name}.json", *code, "--http-allow", "127.0.0.1"] for name in (*runs, "odd", "speak", "gate", "wait")),
            ["bad.json", *code],
            ["fail.json", "--app", "raising_app.py"],
            ["--resume", gates[3], *code],
            [HOSTILE],
            ["fail.json", "--input", HOSTILE],
            ["fail.json", "--idempotency-key", HOSTILE],
            ["fail.json", *code, "--capability", HOSTILE],
            [FILE, *code],
        ],
        ("check",): [
            ["bad.json"],
            *([f"bad-{name}.json", "--as", name] for name in ("ioa", "action", "workstream", "run", "linear")),
            ["gate.json", "--explain", "--app", "hostile_app.py"],
            ["tolerant.json", "--explain"],
            [FILE],
            [HOSTILE],
            ["gate.json", "--as", HOSTILE],
        ],
        ("simulate",): [["gate.json"], ["bad.json"], [FILE, "--tree"], ["gate.json", "--allow", HOSTILE]],
        ("start",): [
            ["bad.json"],
            [HOSTILE],
            ["wait.json", "--business-key", HOSTILE],
            ["--run", HOSTILE],
            ["wait.json", "--at", HOSTILE],
            ["wait.json", "--in", HOSTILE],
        ],
        ("migrate",): [[gates[0], "--to", "2", "--dry-run"], [HOSTILE, "--to", "2"], ["--all", HOSTILE, "--to", "2"]],
        ("retry",): [[runs["fail"], "--dry-run"], [HOSTILE], [runs["fail"], "--idempotency-key", HOSTILE, *code]],
        ("fork",): [
            [runs["fail"], "--from", HOSTILE],
            [HOSTILE, "--from", "a"],
            [runs["fail"], "--from", "a", "--input", HOSTILE],
        ],
        ("rerun",): [[runs["fail"], *code], [HOSTILE], [runs["fail"], "--input", HOSTILE]],
        ("demo",): [["--directory", f"{FILE}/below"]],
        ("profile", "add"): [
            [HOSTILE, "--server", "http://127.0.0.1:9"],
            ["a", "--server", HOSTILE],
            ["b", "--db", f"sqlite:///{FILE}"],
            ["c", "--server", "http://127.0.0.1:9", "--key-file", HOSTILE],
            ["d", "--server", "http://127.0.0.1:9", "--store-key", "--key-file", FILE],
        ],
        ("profile", "list"): [[]],
        ("profile", "show"): [[HOSTILE], []],
        ("profile", "use"): [[HOSTILE], ["--none"]],
        ("profile", "remove"): [[HOSTILE]],
        ("runs",): [
            [],
            *(["--as", name] for name in ("ioa", "action", "workstream", "run", "linear")),
            ["--state", HOSTILE],
            [HOSTILE],
            ["--label", HOSTILE],
            ["--since", HOSTILE],
            ["--error", "x", "--limit", "1"],
            ["--profile", HOSTILE],
            ["--server", HOSTILE],
        ],
        ("show",): [
            *([run] for run in (*runs.values(), gates[0], wait)),
            *([runs["output"], "--as", name] for name in ("ioa", "action", "workstream", "run", "linear")),
            *([runs["fail"], "--as", name] for name in ("ioa", "action", "workstream", "run", "linear")),
            *([gates[0], "--as", name] for name in ("ioa", "action", "workstream", "run", "linear")),
            [HOSTILE],
            [runs["fail"], "--as", HOSTILE],
            [runs["fail"], "--step", HOSTILE],
        ],
        ("explain",): [[gates[0]], [runs["fail"]], [wait], [HOSTILE], [gates[0], HOSTILE]],
        ("status",): [[], ["--window", HOSTILE]],
        ("statistics",): [[], ["--window", HOSTILE]],
        ("wait",): [[runs["fail"]], [gates[0], "--timeout", "0"], [HOSTILE]],
        ("certify",): [[runs["fail"]], [HOSTILE]],
        ("evidence",): [
            [runs["fail"]],
            [HOSTILE],
            ["--verify", HOSTILE],
            ["--new-key", f"{HOSTILE}/key"],
            ["--sign-heads", "--sign-with", HOSTILE],
            [runs["fail"], HOSTILE],
        ],
        ("definitions",): [[], [HOSTILE]],
        ("diff",): [
            [runs["fail"], "--step", HOSTILE],
            [runs["fail"], runs["fail"]],
            [HOSTILE, HOSTILE],
            [f"{HOSTILE}@1", f"{HOSTILE}@2"],
        ],
        ("withdraw",): [
            [HOSTILE, "1", "--reason", "x"],
            ["gate", HOSTILE, "--reason", "x"],
            ["gate", "99", "--reason", HOSTILE],
        ],
        ("restore",): [[HOSTILE, "1"], ["gate", HOSTILE], ["gate", "99", "--by", HOSTILE]],
        ("publish",): [["bad.json"], [HOSTILE], ["gate.json"]],
        ("rollback-preview",): [[runs["fail"]], [gates[0]], [HOSTILE]],
        ("jobs", "start"): [[HOSTILE], ["cancel", "--run", HOSTILE], ["cancel", "--workflow", HOSTILE, "--dry-run"]],
        ("jobs", "list"): [[]],
        ("jobs", "show"): [[HOSTILE]],
        ("jobs", "stop"): [[HOSTILE]],
        ("mcp",): [["--log-level", HOSTILE]],
        ("call",): [[], [HOSTILE], ["slots.set", HOSTILE], ["slots.set", "most=1", f"workflow={HOSTILE}"]],
        ("completion",): [[HOSTILE], ["bash"]],
        ("dialects",): [[], ["ioa"], ["ioa", "--mermaid"], [HOSTILE]],
        ("workers",): [["--all"]],
        ("approvals",): [[], ["--mine"], ["--by", HOSTILE], ["--late"], ["--cursor", HOSTILE]],
        ("approve",): [
            [gates[0], "--comment", HOSTILE],
            [gates[0], "--for", HOSTILE],
            [gates[0], "--evidence", HOSTILE],
            [gates[0]],
            [HOSTILE],
            [gates[1], HOSTILE],
        ],
        ("reject",): [
            [gates[1], "--comment", HOSTILE],
            [gates[1], HOSTILE],
            [gates[1], "--for", HOSTILE],
            [gates[1], "--evidence", HOSTILE],
        ],
        ("request-changes",): [
            [gates[1], "--comment", HOSTILE],
            [gates[1], HOSTILE, "--comment", "x"],
            [gates[1], "--comment", "x", "--for", HOSTILE],
        ],
        ("escalate",): [
            [gates[1], "--reason", HOSTILE],
            [gates[1], HOSTILE, "--reason", "x"],
            [gates[1], "--reason", "x", "--for", HOSTILE],
        ],
        ("reassign",): [
            [gates[1], "only", "--fail", "--reason", HOSTILE],
            [gates[1], HOSTILE, "--fail", "--reason", "x"],
            [gates[1], "only", "--to", HOSTILE, "--reason", "x"],
        ],
        ("annotate",): [[gates[1], HOSTILE], [gates[1], "x", "--step", HOSTILE], [HOSTILE, "x"]],
        ("freeze",): [[gates[1], "--reason", HOSTILE], [HOSTILE, "--reason", "x"]],
        ("decide",): [
            [gates[0], HOSTILE, "retry"],
            [gates[0], "only", HOSTILE],
            [HOSTILE, "a", "skip", "--reason", HOSTILE],
        ],
        ("complete",): [
            [runs["manual"], "only", "--token", HOSTILE],
            [runs["manual"], HOSTILE, "--token", "x"],
            [runs["manual"], "only", "--token", "x", "--outcome", HOSTILE],
            [runs["manual"], "only", "--token-file", FILE],
            [runs["manual"], "only", "--token", "x", "--for", HOSTILE],
        ],
        ("token",): [
            [runs["manual"], HOSTILE, "--reason", "x"],
            [runs["manual"], "only", "--reason", HOSTILE],
            [runs["manual"], "only", "--reason", "x", "--by", HOSTILE],
        ],
        ("send",): [
            [wait, HOSTILE],
            [wait, "paid", "--payload", json.dumps(HOSTILE)],
            [wait, "x", "--id", HOSTILE],
            ["--business-key", HOSTILE, "paid"],
            ["--business-key", "order-h", "paid", "--payload", json.dumps(HOSTILE)],
            ["--business-key", "order-h", "paid", "--start", HOSTILE],
            ["--business-key", "order-h", "paid", "--ttl", HOSTILE],
            ["--correlation-id", HOSTILE, "paid"],
        ],
        ("emit",): [[HOSTILE], ["paid", "--payload", json.dumps(HOSTILE)], ["paid", "--id", HOSTILE]],
        ("triggers", "list"): [[]],
        ("triggers", "show"): [[HOSTILE]],
        ("triggers", "next"): [[HOSTILE], ["x", "--after", HOSTILE]],
        ("triggers", "add"): [[HOSTILE, "x", "--cron", "@daily"], ["x", HOSTILE, "--cron", HOSTILE]],
        ("triggers", "pause"): [[HOSTILE]],
        ("triggers", "resume"): [[HOSTILE]],
        ("triggers", "fire"): [[HOSTILE], ["x", "--payload", json.dumps(HOSTILE), "--idempotency-key", HOSTILE]],
        ("triggers", "backfill"): [[HOSTILE, "--since", "1h"], ["x", "--since", HOSTILE], ["x", "--stop", HOSTILE]],
        ("triggers", "remove"): [[HOSTILE]],
        ("audit",): [[], [HOSTILE], ["--actor", HOSTILE], ["--outcome", HOSTILE], ["--cursor", HOSTILE]],
        ("mailbox", "list"): [[], ["order-h"], [HOSTILE]],
        ("sinks", "add"): [
            [HOSTILE, "--kind", "jsonl", "--option", "path=x"],
            ["x", "--kind", HOSTILE],
            ["x", "--kind", "jsonl", "--option", HOSTILE],
            ["x", "--kind", "jsonl", "--option", "path=x", "--on", HOSTILE, "--by", HOSTILE],
        ],
        ("sinks", "list"): [[]],
        ("sinks", "test"): [[HOSTILE]],
        ("sinks", "remove"): [[HOSTILE], ["x", "--reason", HOSTILE]],
        ("outbox", "list"): [[], ["--sink", HOSTILE], ["--state", HOSTILE], ["--cursor", HOSTILE]],
        ("outbox", "show"): [[HOSTILE, "x"], [UNKNOWN, HOSTILE]],
        ("outbox", "redrive"): [["--run", HOSTILE], ["--sink", HOSTILE, "--reason", HOSTILE]],
        ("outbox", "drop"): [[HOSTILE, "x", "y"], [UNKNOWN, HOSTILE, HOSTILE, "--reason", HOSTILE]],
        ("outbox", "status"): [[]],
        ("outbox", "history"): [[]],
        ("archive",): [[HOSTILE], ["--to", f"{FILE}/x", HOSTILE]],
        ("state", "export"): [[f"{FILE}/x"], ["state", HOSTILE]],
        ("mailbox", "drop"): [[HOSTILE], ["order-h", "--id", HOSTILE], ["order-h"]],
        ("pause",): [
            [gates[2], "--reason", HOSTILE],
            [gates[2]],
            [HOSTILE],
            ["--queue", HOSTILE],
            ["--workflow", HOSTILE],
            ["--all", HOSTILE],
        ],
        ("resume",): [
            [gates[2], "--reason", HOSTILE],
            [gates[2]],
            [HOSTILE],
            ["--queue", HOSTILE],
            ["--workflow", HOSTILE],
            ["--all"],
        ],
        ("cancel",): [[gates[2], "--reason", HOSTILE], [gates[2]], [HOSTILE]],
        ("quarantine",): [
            [HOSTILE, "--reason", "x"],
            [aside, "--reason", HOSTILE, "--by", "ann"],
            [aside, "--reason", "x", "--by", HOSTILE],
            ["--list"],
            ["--history"],
            [aside, "--release", "--reason", HOSTILE],
        ],
        ("tenants", "signing"): [[HOSTILE], ["x", "--secret", HOSTILE], ["x", "--none", "--by", HOSTILE]],
        ("tenants", "quotas"): [[HOSTILE], ["x", "--max-concurrent-runs", HOSTILE], ["x", "--none", "--by", HOSTILE]],
        ("users", "create"): [[HOSTILE], ["ann", "--display", HOSTILE], ["bea", "--by", HOSTILE], ["bea"]],
        ("users", "list"): [[], ["--key-file", FILE], ["--key-file", HOSTILE]],
        ("users", "show"): [["ann"], [HOSTILE]],
        ("users", "grant"): [
            [HOSTILE, "--role", "x"],
            ["ann", "--role", HOSTILE],
            ["ann", "--role", "x", "--until", HOSTILE],
            ["ann", "--role", "a\u202eb"],
            ["ann", "--group", "staff"],
            [HOSTILE, "--role", HOSTILE, "--is-group"],
        ],
        ("users", "revoke"): [["ann", "--role", HOSTILE], [HOSTILE, "--group", "x"]],
        ("users", "disable"): [[HOSTILE]],
        ("users", "enable"): [[HOSTILE]],
        ("users", "history"): [[], ["ann"], [HOSTILE]],
        ("delegate",): [
            [HOSTILE, "ann", "--open-ended"],
            ["ann", HOSTILE, "--open-ended"],
            ["ann", "bea", "--until", HOSTILE],
            ["ann", "bea", "--open-ended", "--reason", HOSTILE],
            ["--list"],
            ["ann", HOSTILE, "--end"],
        ],
        ("keys", "create"): [
            [HOSTILE, "--scope", "read"],
            ["ann", "--scope", HOSTILE],
            ["ann", "--scope", "read", "--expires", HOSTILE],
            ["ann", "--scope", "read", "--output", f"{FILE}/x"],
            ["ann", "--scope", "read"],
        ],
        ("keys", "rotate"): [[HOSTILE], ["x", "--overlap", HOSTILE]],
        ("keys", "revoke"): [[HOSTILE]],
        ("keys", "list"): [[], ["--owner", HOSTILE]],
        ("tenants", "create"): [[HOSTILE], ["acme", "--vouching", HOSTILE], ["acme"]],
        ("tenants", "set"): [[HOSTILE, "--vouching", "allowed"], ["acme", "--vouching", HOSTILE]],
        ("tenants", "list"): [[]],
        ("network", "allow"): [[HOSTILE], ["10.0.0.0/8", "--by", HOSTILE], ["10.0.0.0/8"]],
        ("network", "remove"): [[HOSTILE], ["10.0.0.0/8"]],
        ("network", "list"): [[], ["--history"]],
        ("slots", "set"): [["3", "--workflow", HOSTILE], ["3", "--by", HOSTILE], [HOSTILE], ["0"], ["3"]],
        ("slots", "clear"): [["--workflow", HOSTILE], []],
        ("slots", "list"): [[]],
        ("limits", "set"): [
            ["api", "--running", "3", "--for", HOSTILE],
            ["api", "--rate", HOSTILE],
            [HOSTILE, "--running", "1", "--by", HOSTILE],
            ["api", "--running", "0"],
        ],
        ("limits", "clear"): [["api", "--for", HOSTILE], [HOSTILE]],
        ("limits", "list"): [[]],
        ("limits", "show"): [[HOSTILE], ["api", "--for", HOSTILE]],
        ("streams", "list"): [[HOSTILE], [runs["output"]]],
        ("streams", "read"): [[HOSTILE, "log"], [runs["output"], HOSTILE], [runs["output"], "log", "--step", HOSTILE]],
        ("tail",): [[HOSTILE], [runs["output"], HOSTILE]],
        ("resources", "set"): [
            [HOSTILE, "3"],
            ["cpu", HOSTILE],
            ["cpu", "3", "--by", HOSTILE],
            ["cpu", "0"],
            ["cpu", "3"],
        ],
        ("resources", "clear"): [[HOSTILE], ["cpu"]],
        ("resources", "list"): [[]],
        ("hooks", "add"): [[HOSTILE]],
        ("hooks", "remove"): [[HOSTILE], ["billing"]],
        ("hooks", "list"): [[]],
        ("hooks", "test"): [[HOSTILE, HOSTILE], ["billing", HOSTILE]],
        ("worker",): [["--name", HOSTILE], ["--app", HOSTILE], ["--app", "raising_app.py"], ["--grace", HOSTILE]],
        ("serve",): [["--host", HOSTILE], ["--drain", HOSTILE], ["--log-level", HOSTILE], ["--tenant", HOSTILE]],
        ("dev",): [["--host", HOSTILE], ["--app", HOSTILE], ["--app", "raising_app.py"], ["--db", HOSTILE]],
        ("prune",): [["--older-than", HOSTILE, "--no-archive"], ["--keep", "0", "--archive", f"{FILE}/x"]],
        ("bench",): [["--only", HOSTILE], ["--store", HOSTILE]],
        ("policies", "test"): [["gate.json"], [HOSTILE]],
        ("schemas", "publish"): [["gate.json", "--ref", HOSTILE], [HOSTILE, "--ref", "x"], [FILE, "--ref", "x"]],
        ("schemas", "list"): [[]],
        ("schemas", "show"): [[HOSTILE]],
        ("policies", "publish"): [["gate.json"], [HOSTILE]],
        ("policies", "list"): [[]],
        ("policies", "show"): [[], ["1"], [HOSTILE]],
        ("policies", "off"): [[]],
        ("policies", "replay"): [[HOSTILE]],
        ("log", "export"): [
            ["--all"],
            [HOSTILE],
            [runs["http"], "--as", "ioa"],
            ["--all", "--workers", "--output", f"{FILE}/x"],
        ],
        ("log", "verify"): [["bad.log"], [FILE], [HOSTILE], ["bad.log", "--as", "ioa"]],
        ("db", "migrate"): [[], ["--db", HOSTILE], ["--db", f"sqlite:///{FILE}"], ["--db", SCHEMA]],
        ("db", "maintain"): [[], ["--db", HOSTILE], ["--db", f"sqlite:///{FILE}"]],
        ("db", "status"): [[], ["--db", f"postgresql://{HOSTILE}"], ["--db", f"sqlite:///new/{FILE}"]],
        ("lab", "simulate"): [["--with", HOSTILE], ["--with", json.dumps({HOSTILE: HOSTILE})]],
        ("lab", "mutants"): [["--only", HOSTILE], ["--only", HOSTILE, "--report", FILE]],
        ("lab", "campaign"): [["--report", f"{FILE}/x", "--runs", "1", "--no-mutants"]],
        ("lab", "stores"): [["--only", HOSTILE]],
        ("lab", "check"): [["--case", HOSTILE, "--states", "1"]],
        ("db", "backup"): [[FILE], [HOSTILE], [f"nowhere/{FILE}"], ["copy.db", "--db", f"sqlite:///new/{FILE}"]],
        ("db", "grants"): [
            [HOSTILE, "--as", "worker"],
            [HOSTILE, "--as", HOSTILE],
            [HOSTILE, "--as", "client", "--db", "postgresql://h/db"],
        ],
        ("lab", "fuzz"): [["--only", HOSTILE], ["--case", HOSTILE]],
        ("lab", "forgeries"): [["--seeds", HOSTILE]],
        ("lab", "packs"): [["--seeds", HOSTILE]],
        ("lab", "golden", "check"): [["--only", HOSTILE]],
        ("lab", "golden", "record"): [["--only", HOSTILE]],
        ("lab", "proof"): [["--list", "--only", HOSTILE]],
        ("lab", "truth"): [["--store", HOSTILE]],
        ("lab", "neighbour"): [["--only", HOSTILE], ["--store", HOSTILE]],
        ("lab", "views"): [["--views", HOSTILE], ["--views", "3", "--store", "sqlite", "--report", f"{FILE}/x"]],
        ("lab", "misdeeds"): [["--seed", HOSTILE], ["--runs", "1", "--db", f"mysql://{HOSTILE}"]],
        ("lab", "torture"): [["--only", HOSTILE]],
        ("lab", "ablation"): [["--only", HOSTILE], ["--work", HOSTILE], ["--store", HOSTILE]],
    }
    late = {  # what was decided, shown afterwards
        ("show",): [[gates[0]], [gates[1]], [gates[2]], [wait], [gates[2], "--as", "workstream"]],
        ("runs",): [[]],
        ("log", "export"): [["--all"]],
    }
    everything = {path: [*given, *late.get(path, [])] for path, given in plain.items()}
    for path, given in everything.items():
        given.append([*given[-1], "--traceback"])
        if path != ("log", "export"):
            given += [[*words, "--json"] for words in given[:4]]
    return everything


def play(directory: str, port: int, each: int = 1) -> None:
    """Run every n-th case of each command; a line with a mark on either stream comes before each."""
    from stepkeep.cli.main import main

    signal.alarm(300)  # a command that takes hostile text and goes on forever is a finding, too
    os.chdir(directory)
    os.environ["STEPKEEP_CONFIG"] = f"{directory}/profiles.toml"
    write_files(port)
    for path, every in cases().items():
        for words in every[::each]:
            for stream in (sys.stdout, sys.stderr):
                stream.write(f"\n{MARK}{json.dumps([*path, *words])}\n")
                stream.flush()
            try:
                main([*path, *words])
            except SystemExit as ended:
                sys.stderr.write(f"SystemExit {ended.code!a}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    play(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
