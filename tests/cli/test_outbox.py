"""`stepkeep sinks` and `stepkeep outbox`: what they print, what they answer as JSON, and their exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Cli

APP = str(Path(__file__).parent / "outbox_app.py")
WORK = "workflow: w\nsteps: [{name: a, uses: outbox_cli.tell}]\n"


@pytest.fixture
def ran(cli: Cli, tmp_path: Path) -> Path:
    (tmp_path / "w.yaml").write_text(WORK)
    assert cli("db", "migrate").status == 0
    return tmp_path


def test_a_sink_is_added_tried_listed_and_gets_events(cli: Cli, ran: Path) -> None:
    file = ran / "events.jsonl"
    assert "there is no sink" in cli("sinks", "list").out
    added = cli("sinks", "add", "log", "--kind", "jsonl", "--on", "order.*", "--option", f"path={file}")
    assert "takes order.* of emitted" in added.out
    assert cli("sinks", "test", "log").status == 0
    assert cli("run", str(ran / "w.yaml"), "--app", APP).status == 0
    sent = [json.loads(line) for line in file.read_text().splitlines()]
    assert [one["type"] for one in sent] == ["stepkeep.test", "order.paid"]
    assert cli("outbox", "status", "--json").json == {
        "sinks": [{"sink": "log", "waiting": 0, "dead": 0, "lag_seconds": 0.0}]
    }
    assert cli("outbox", "list").out == "nothing waits to be delivered\n"
    assert cli("sinks", "add", "log", "--kind", "jsonl", "--option", f"path={file}").status != 0
    replaced = cli("sinks", "add", "log", "--kind", "jsonl", "--replace", "--option", f"path={file}", "--json")
    assert replaced.json["sink"]["on"] == ["*"]
    assert [one["action"] for one in cli("outbox", "history", "--json").json["actions"]] == [
        "sink_replaced",
        "sink_added",
    ]


def test_a_sink_that_cannot_be_reached_says_so(cli: Cli, ran: Path) -> None:
    cli("sinks", "add", "log", "--kind", "jsonl", "--option", f"path={ran}/missing/a.jsonl")
    tried = cli("sinks", "test", "log")
    assert tried.status == 1
    assert "No such file or directory" in tried.err
    assert "no sink other" in cli("sinks", "test", "other").err
    assert "no kind of sink" in cli("sinks", "add", "x", "--kind", "pigeon").err
    assert "is NAME=VALUE" in cli("sinks", "add", "x", "--kind", "host", "--option", "a").err
    assert "one or several of" in cli("sinks", "add", "x", "--kind", "host", "--events", "all").err


def test_events_for_a_host_wait_and_are_discarded_only_with_a_reason(cli: Cli, ran: Path) -> None:
    cli("sinks", "add", "mine", "--kind", "host")
    run = cli("run", str(ran / "w.yaml"), "--app", APP, "--json").json["run"]["id"]
    [one] = cli("outbox", "list", "--sink", "mine", "--json").json["deliveries"]
    assert (one["run"], one["state"]) == (run, "ready")
    shown = cli("outbox", "show", run, "mine")
    assert f"{run}/3/0  order.paid  ready" in shown.out
    assert "only a dead event" in cli("outbox", "drop", run, "mine", f"{run}/3/0", "--reason", "x").err
    assert "no delivery of these is dead" in cli("outbox", "redrive", "--sink", "mine", "--reason", "x").err
    assert "a reason is needed" in cli("outbox", "redrive", "--sink", "mine").err
    assert "say what is sent again" in cli("outbox", "redrive", "--reason", "x").err
    assert "1 runs are not delivered" in cli("sinks", "remove", "mine").err
    assert "needs a reason" in cli("sinks", "remove", "mine", "--discard").err
    removed = cli("sinks", "remove", "mine", "--discard", "--reason", "done", "--json")
    assert removed.json == {"removed": "mine", "discarded_runs": 1}
    assert "state: Input should be 'dead', 'ready' or 'sending'" in cli("outbox", "list", "--state", "lost").err


def test_the_address_of_a_run_is_checked(cli: Cli, ran: Path) -> None:
    given = ("start", str(ran / "w.yaml"), "--app", APP)
    assert "webhook_url" in cli(*given, "--webhook-url", "ftp://x/").err
    assert "give that too" in cli(*given, "--webhook-secret", "HOOK").err
    run = cli(*given, "--webhook-url", "https://shop.example/runs", "--json").json["run"]["id"]
    [one] = cli("outbox", "list", "--run", run, "--json").json["deliveries"]
    assert (one["sink"], one["state"], one["events"]) == ("webhook_url", "idle", ["endings"])
