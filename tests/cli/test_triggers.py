"""`stepkeep triggers` and `stepkeep emit` at the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli

FLOW = """
workflow: report
triggers:
  - {name: nightly, schedule: "30 2 * * *", zone: Europe/Zurich}
steps:
  - {name: a, command: [echo, hi]}
"""


@pytest.fixture
def published(cli: Cli, home: Path) -> Cli:
    (home / "report.yaml").write_text(FLOW)
    assert cli("publish", "report.yaml").status == 0
    return cli


def test_a_declared_trigger_is_listed_shown_paused_and_resumed(published: Cli) -> None:
    [listed] = published("triggers", "list", "--json").json["triggers"]
    assert (listed["trigger"], listed["state"], listed["declared"]) == ("report/nightly", "active", True)
    assert "30 2 * * * (Europe/Zurich)" in published("triggers", "list").out
    paused = published("triggers", "pause", "report/nightly", "--by", "ann")
    assert "is paused" in paused.out
    assert "triggers resume report/nightly" in paused.out
    assert published("triggers", "show", "report/nightly", "--json").json["paused_by"] == "ann"
    assert "active again; next at" in published("triggers", "resume", "report/nightly").out
    refused = published("triggers", "remove", "report/nightly")
    assert refused.status != 0
    assert "belongs to version 1 of report" in refused.err


def test_the_next_moments_around_a_change_of_the_clock(published: Cli) -> None:
    after = ["--after", "2027-03-27T12:00Z", "--count", "2"]
    coming = published("triggers", "next", "report/nightly", *after, "--json").json["next"]
    assert [one["local"] for one in coming] == ["2027-03-28T03:00:00+02:00", "2027-03-29T02:30:00+02:00"]


def test_a_trigger_is_added_fired_filled_and_removed(published: Cli) -> None:
    added = published("triggers", "add", "often", "report", "--every", "1h", "--overlap", "allow")
    assert "trigger often starts report: every 1h" in added.out
    fired = published("triggers", "fire", "often", "--idempotency-key", "k", "--json").json
    assert fired["state"] == "started"
    assert published("triggers", "fire", "often", "--idempotency-key", "k", "--json").json["run_id"] == fired["run_id"]
    day = ["--since", "2026-03-01T00:00Z", "--until", "2026-03-02T00:00Z"]
    assert "24 moments" in published("triggers", "backfill", "often", *day, "--dry-run").out
    job = published("triggers", "backfill", "often", *day, "--json").json
    assert (job["state"], job["moments"]) == ("running", 24)
    assert "is stopped" in published("triggers", "backfill", "often", "--stop", job["backfill"]).out
    shown = published("triggers", "show", "often").out
    assert fired["run_id"] in shown
    assert published("triggers", "remove", "often", "--json").json["state"] == "removed"


def test_an_event_from_outside_fires_what_it_concerns_once(published: Cli) -> None:
    published("triggers", "add", "risky", "report", "--event", "risk.*", "--if", "riskScore >= 0.7")
    told = published("emit", "risk.rated", "--payload", '{"riskScore": 0.9}', "--id", "e-1")
    assert "risky started run" in told.out
    again = published("emit", "risk.rated", "--payload", '{"riskScore": 0.9}', "--id", "e-1", "--json").json
    assert len(again["firings"]) == 1
    assert "no trigger is about order.paid" in published("emit", "order.paid").out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("add", "x", "report", "--cron", "61 * * * *"), "`61` is no minute"),
        (("add", "x", "report"), "has none"),
        (("add", "x", "nothing", "--every", "1h"), "no published workflow nothing"),
        (("add", "x", "report", "--every", "1h", "--state", "failed"), "--state goes with --ended"),
        (("show", "nothing"), "no trigger nothing"),
        (("backfill", "report/nightly"), "give --since"),
    ],
)
def test_what_is_wrong_is_said(published: Cli, arguments: tuple[str, ...], said: str) -> None:
    refused = published("triggers", *arguments)
    assert refused.status != 0
    assert said in refused.err
    assert "Traceback" not in refused.err
