"""`stepkeep resources`: what happened, what comes next, and as JSON."""

from __future__ import annotations

import json

from tests.cli.conftest import Cli


def test_a_pool_is_given_a_size_listed_and_cleared(cli: Cli) -> None:
    done = cli("resources", "set", "cpu", "8", "--by", "ann")
    assert done.status == 0
    assert "resource cpu has 8 units" in done.out
    assert "stepkeep resources clear cpu" in done.out
    listed = json.loads(cli("resources", "list", "--json").out)
    assert listed == {"resources": [{"resource": "cpu", "most": 8, "held": 0, "holders": []}]}
    assert "cpu" in cli("resources", "list").out
    assert "no limit is set for the units of resource cpu" in cli("resources", "clear", "cpu").out
    assert "no step holds a resource" in cli("resources", "list").out


def test_a_pool_needs_a_number_of_units(cli: Cli) -> None:
    cli("resources", "set", "cpu", "8")
    wrong = cli("resources", "set", "cpu", "0")
    assert (wrong.status, "'NUMBER': Input should be greater than or equal to 1" in wrong.err) == (2, True)
