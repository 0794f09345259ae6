"""Child workflows on the command line: the example, its tree, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Cli

EXAMPLES = Path(__file__).parents[2] / "examples" / "children"


def test_the_example_runs_as_a_tree_of_three_levels(cli: Cli) -> None:
    for name in ("pack", "ship"):
        cli("publish", str(EXAMPLES / f"{name}.yaml"))
    ran = cli("run", str(EXAMPLES / "order.yaml"), "--input", '{"item": "lamp"}', "--json")
    run = json.loads(ran.out)["run"]
    assert (run["state"], run["output"]) == ("succeeded", "boxed lamp\n")
    [ship] = run["children"]
    [pack] = ship["children"]
    assert [(one["step"], one["workflow"], one["state"]) for one in (ship, pack)] == [
        ("ship", "ship", "succeeded"),
        ("pack", "pack", "succeeded"),
    ]
    shown = cli("show", run["id"])
    assert f"  ● ship: ship v1 succeeded, run {ship['run_id']}" in shown.out
    assert f"    ● pack: pack v1 succeeded, run {pack['run_id']}" in shown.out
    assert f"child of run {ship['run_id']}" in cli("show", pack["run_id"]).out
    for one in (run["id"], ship["run_id"], pack["run_id"]):
        assert cli("certify", one).status == 0
    assert [one["id"] for one in json.loads(cli("runs", "--roots", "--json").out)["runs"]] == [run["id"]]
    refused = cli("jobs", "start", "cancel", "--roots")
    assert (refused.status, "All is no choice." in refused.err) == (2, True)
    one_too_many = cli("jobs", "start", "cancel", "--roots", "--workflow", "pack", "--state", "succeeded", "--dry-run")
    assert "cancel would be done to 0 runs" in one_too_many.out


def test_a_workflow_that_is_not_published_is_named(cli: Cli) -> None:
    refused = cli("publish", str(EXAMPLES / "order.yaml"))
    assert refused.status != 0
    assert "step ship starts the workflow ship, which is not published. Publish it first." in refused.err


def test_the_check_refuses_what_means_nothing_at_such_a_step(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "order.yaml"
    file.write_text(
        "workflow: order\nsteps:\n  - {name: ship, workflow: ship, retry: {max_attempts: 2}, timeout: 5m}\n"
    )
    told = cli("check", str(file))
    assert told.status == 2
    assert "`retry` means nothing for `workflow`." in told.err + told.out
    assert (
        "`timeout` means nothing for `workflow`. Write `workflow: {name: NAME, deadline: 1h}`." in told.err + told.out
    )


def test_simulate_walks_a_child_and_its_ends_as_fates_of_its_step(cli: Cli) -> None:
    walked = cli("simulate", str(EXAMPLES / "order.yaml"))
    late = next(line for line in walked.out.splitlines() if "the child of ship does not end in time" in line)
    assert "the child of ship fails, is cancelled  " in walked.out
    assert "partly undone" in late, "it may have had its effect"
    assert "child ship v1, started by order.ship:" in walked.out
    assert "child pack v1, started by ship.pack:" in walked.out
