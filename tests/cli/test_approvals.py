"""`stepkeep approvals` lists open gates with the command that decides each, on both databases."""

from __future__ import annotations

import shlex
from pathlib import Path

from tests.cli.conftest import Cli

FLOW = """
workflow: payout
timeout: 2d
steps:
  - name: sign
    approval:
      prompt: Pay out?
      facts: {sum: "${{ input.sum }}"}
      roles: [finance]
      quorum: 2
      not: [requester]
      deadline: 1d
"""


def test_each_gate_ends_in_the_command_that_decides_it_or_in_the_reason_why_not(
    cli: Cli, home: Path, database_url: str
) -> None:
    db = ("--db", database_url)
    (home / "payout.yaml").write_text(FLOW)
    for name in ("ann", "bea", "cyd"):
        cli("users", "create", name, *db)
        cli("users", "grant", name, "--role", "finance", *db)
    runs = [
        cli("start", "payout.yaml", "--input", '{"sum": 40}', "--by", "ann", "--json", *db).json["run"]["id"]
        for _ in range(2)
    ]
    said = cli("approvals", "--by", "bea", *db)
    assert said.status == 0
    assert f"sign of payout ({runs[0]}), asked for by ann, until " in said.out
    for line in ("  Pay out?", "  sum: 40", "  needs 2 more by role finance"):
        assert line in said.out.splitlines()
    [command, *_] = [line.strip() for line in said.out.splitlines() if line.startswith("  stepkeep approve")]
    assert command.startswith(f"stepkeep approve {runs[0]} sign --by bea")
    assert cli(*shlex.split(command)[1:]).status == 0, "the command does what it says"
    again = cli("approvals", "--by", "bea", *db)
    assert "needs 1 more by role finance; bea approved at " in again.out
    assert "you may not: bea has approved sign already; a decision is final" in again.out
    [left] = cli("approvals", "--mine", "--by", "bea", "--json", *db).json["approvals"]
    assert left["run_id"] == runs[1]
    assert "you may not: ann may not decide or complete sign" in cli("approvals", "--by", "ann", *db).out
    page = cli("approvals", "--limit", "1", "--by", "cyd", *db)
    [more] = [line.removeprefix("more: ") for line in page.out.splitlines() if line.startswith("more: ")]
    assert runs[1] in cli(*shlex.split(more)[1:]).out
    assert "no late gate is open" in cli("approvals", "--late", *db).out
    assert cli("approvals", "--cursor", "nonsense", *db).status == 2
    explained = cli("explain", runs[0], *db).out
    assert "cyd may decide it. ann may not: ann asked for the run. bea may not: has approved it." in explained
