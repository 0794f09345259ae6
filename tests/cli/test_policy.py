"""`stepkeep policy`: what it prints, what it answers as JSON, and its exit status."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli

EXAMPLES = Path(__file__).parents[2] / "examples" / "policies"
DENIES = "policy: p\nrules: [{name: closed, then: deny, reason: not today}]\n"
WORK = "workflow: w\nsteps: [{name: a, command: ['true']}]\n"


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.iterdir()))
def test_the_cases_of_every_example_hold(cli: Cli, name: str) -> None:
    assert cli("policies", "test", str(EXAMPLES / name)).status == 0


def test_a_policy_is_published_listed_shown_and_turned_off(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(DENIES)
    cli("db", "migrate")
    assert cli("policies", "list").out == "no policy is published\n"
    published = cli("policies", "publish", str(tmp_path / "p.yaml"), "--by", "ann")
    assert published.out.startswith("revision 1: p by ann at ")
    assert cli("policies", "show").out.splitlines()[1:] == ["  closed: deny"]
    assert cli("policies", "off", "--json").json["policy"]["revision"] == 2
    assert [one["policy"] for one in cli("policies", "list", "--json").json["policies"]] == ["off", "p"]
    assert cli("policies", "show", "1", "--json").json["document"]["rules"][0]["name"] == "closed"
    assert "has no revision 9" in cli("policies", "show", "9").err


def test_a_policy_with_a_case_that_fails_is_not_published(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(DENIES + "cases: [{name: open, given: {}, expect: allow}]\n")
    refused = cli("policies", "publish", str(tmp_path / "p.yaml"))
    assert refused.status != 0
    assert "1 of 1 cases of policy p have another verdict: open" in refused.err
    cli("db", "migrate")
    assert cli("policies", "list", "--json").json == {"policies": []}


def test_verdicts_of_a_run_are_replayed(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(DENIES)
    (tmp_path / "w.yaml").write_text(WORK)
    cli("policies", "publish", str(tmp_path / "p.yaml"))
    run_id = cli("start", str(tmp_path / "w.yaml"), "--json").json["run"]
    run_id = run_id if isinstance(run_id, str) else run_id["id"]
    shown = cli("show", run_id)
    assert "denied by the rule closed of policy revision 1: not today" in shown.out
    replayed = cli("policies", "replay", run_id)
    assert (replayed.status, replayed.out) == (0, "entry 1: a deny by closed: the same again\n")
