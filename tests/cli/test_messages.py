"""`stepkeep send` by business key and correlation id, and `stepkeep mailbox`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli

WAITS = """
workflow: parcel
steps:
  - {name: payment, wait: {event: paid}}
"""


@pytest.fixture
def parcel(home: Path) -> str:
    (home / "parcel.yaml").write_text(WAITS, encoding="utf-8")
    return "parcel.yaml"


def start(cli: Cli, file: str, *options: str) -> str:
    return str(cli("start", file, *options, "--json").json["run"]["id"])


def test_a_message_by_key_goes_to_the_live_run(cli: Cli, parcel: str) -> None:
    run = start(cli, parcel, "--business-key", "order-1")
    said = cli("send", "--business-key", "order-1", "paid", "--payload", "7", "--id", "m-1")
    assert (said.status, said.out) == (0, f"paid went to payment; run {run} has succeeded\n")
    again = cli("send", "paid", "--business-key", "order-1", "--id", "m-1", "--json").json
    assert (again["decision"]["repeated"], again["run"]["id"]) == (True, run)


def test_a_message_before_the_run_is_kept_listed_and_delivered(cli: Cli, parcel: str) -> None:
    cli("publish", parcel)
    said = cli("send", "--business-key", "order-1", "paid", "--payload", '{"amount": 7}', "--id", "m-1", "--ttl", "2d")
    assert said.out.startswith("paid is kept for order-1 until 20")
    assert "mailbox list order-1" in said.out
    [kept] = cli("mailbox", "list", "--json").json["messages"]
    assert (kept["key"], kept["id"], kept["payload"], kept["expired"]) == ("order-1", "m-1", {"amount": 7}, False)
    assert "order-1" in cli("mailbox", "list", "order-1").out
    assert cli("mailbox", "list", "order-2").out == "no message is kept\n"
    run = start(cli, "parcel", "--business-key", "order-1")
    assert cli("show", run, "--json").json["run"]["output"] == {"amount": 7}
    assert cli("mailbox", "list", "--json").json == {"messages": [], "more": False}


def test_send_starts_the_workflow_if_no_run_has_the_key(cli: Cli, parcel: str) -> None:
    asked = ("send", "--business-key", "order-1", "--start", parcel, "--input", "{}", "paid", "--id", "m-1")
    first = cli(*asked)
    assert "paid started the run and went to payment" in first.out
    assert cli(*asked, "--json").json["decision"]["repeated"] is True
    assert len(cli("runs", "--json").json["runs"]) == 1


def test_a_dropped_message_is_gone_and_its_duplicate_is_not_kept(cli: Cli, parcel: str) -> None:
    cli("publish", parcel)
    for number in range(2):
        cli("send", "--business-key", "order-1", "paid", "--id", f"m-{number}")
    said = cli("mailbox", "drop", "order-1", "--id", "m-0")
    assert said.out.startswith("dropped for order-1: m-0\n")
    assert "was dropped or has expired" in cli("send", "--business-key", "order-1", "paid", "--id", "m-0").out
    assert cli("mailbox", "drop", "order-1", "--json").json == {"key": "order-1", "dropped": ["m-1"]}
    nothing = cli("mailbox", "drop", "order-1")
    assert (nothing.status, "no message is kept" in nothing.err) == (1, True)


def test_a_correlation_id_finds_the_only_live_run(cli: Cli, parcel: str) -> None:
    first = start(cli, parcel, "--correlation-id", "case-7")
    second = start(cli, parcel, "--correlation-id", "case-7")
    told = cli("send", "--correlation-id", "case-7", "paid")
    assert told.status == 1
    assert first in told.err
    assert second in told.err
    cli("cancel", first)
    assert f"run {second} has succeeded" in cli("send", "--correlation-id", "case-7", "paid").out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("paid",), "Say to which run"),
        (("--business-key", "k", "RUN", "paid"), "leave out RUN"),
        (("--business-key", "k", "--correlation-id", "c", "paid"), "give one of them"),
        (("01a1e12c-57d6-75bf-abba-e99e88c4e41f", "paid", "--ttl", "1h"), "go with --business-key"),
        (("--business-key", "k", "paid", "--input", "{}"), "go with start="),
        (("--correlation-id", "c", "paid", "--ttl", "1h"), "ttl goes with key="),
        (("--business-key", "k", "paid", "--ttl", "soon"), "ttl"),
        (("--business-key", "k", "--start", "parcel", "--ttl", "1h", "paid"), "is not kept"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_plain_words(
    cli: Cli, parcel: str, arguments: tuple[str, ...], said: str
) -> None:
    cli("publish", parcel)
    refused = cli("send", *arguments)
    assert refused.status == 2
    assert said in refused.err
    assert cli("mailbox", "list", "--json").json["messages"] == []
