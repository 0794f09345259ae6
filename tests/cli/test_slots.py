"""`stepkeep slots`: what happened, what comes next, and as JSON."""

from __future__ import annotations

import json

from tests.cli.conftest import Cli


def test_a_limit_is_set_listed_and_ended(cli: Cli) -> None:
    done = cli("slots", "set", "20", "--by", "ann")
    assert done.status == 0
    assert "at most 20 runs of tenant default run" in done.out
    assert "stepkeep slots clear" in done.out
    listed = json.loads(cli("slots", "list", "--json").out)
    assert listed == {"slots": [{"scope": "tenant", "workflow": None, "most": 20, "held": 0, "waiting": 0}]}
    assert "the tenant" in cli("slots", "list").out
    assert "no limit is set for tenant default" in cli("slots", "clear").out
    assert "no run is under a limit" in cli("slots", "list").out


def test_a_limit_needs_a_number_and_a_workflow_that_exists(cli: Cli) -> None:
    cli("slots", "set", "20")
    wrong = cli("slots", "set", "0")
    assert (wrong.status, "'NUMBER': Input should be greater than or equal to 1" in wrong.err) == (2, True)
    unknown = cli("slots", "set", "3", "--workflow", "nothing")
    assert unknown.status != 0
    assert "there is no workflow 'nothing'" in unknown.err
