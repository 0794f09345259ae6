"""`stepkeep withdraw` and `stepkeep restore`."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Cli


def test_a_version_is_withdrawn_shown_and_restored(cli: Cli, home: Path) -> None:
    (home / "plain.yaml").write_text("workflow: plain\nsteps:\n  - {name: one, uses: one}\n")
    assert cli("publish", "plain.yaml", "--handlers-elsewhere").status == 0
    said = cli("withdraw", "plain", "1", "--reason", "it pays twice", "--by", "ann")
    assert (said.status, "no run of it starts" in said.out) == (0, True)
    [shown] = cli("definitions", "--json").json["definitions"]
    assert (shown["withdrawn"]["by"], shown["withdrawn"]["reason"]) == ("ann", "it pays twice")
    assert "ann: it pays twice" in cli("definitions").out.replace("\n", " ")
    refused = cli("start", "plain.yaml", "--handlers-elsewhere", "--json")
    assert refused.json["error"]["code"] == "conflict"
    assert "stepkeep restore plain 1" in refused.json["error"]["message"]
    again = cli("withdraw", "plain", "1", "--reason", "x", "--json")
    assert again.json["error"]["code"] == "conflict"
    assert cli("restore", "plain", "1", "--json").json["restored"]["state"] == "published"
    assert cli("start", "plain.yaml", "--handlers-elsewhere").status == 0
    assert cli("restore", "plain", "9").status != 0
