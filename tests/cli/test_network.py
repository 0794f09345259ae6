"""`stepkeep network`: what happened, what comes next, and as JSON."""

from __future__ import annotations

import json

from tests.cli.conftest import Cli


def test_an_allow_list_is_changed_and_listed(cli: Cli) -> None:
    added = cli("network", "allow", "Search.Internal:9200", "--by", "ann")
    assert (added.status, added.err) == (0, "")
    assert "may reach Search.Internal:9200" in added.out
    assert "stepkeep network remove" in added.out
    assert json.loads(cli("network", "list", "--json").out) == {"allow": ["search.internal:9200"]}
    assert "ann" in cli("network", "list", "--history").out
    assert "no longer allowed" in cli("network", "remove", "search.internal:9200").out
    assert "nothing is allowed" in cli("network", "list").out
    again = cli("network", "remove", "search.internal:9200")
    assert again.status != 0
    assert "not in the allow list" in again.err


def test_what_is_no_host_is_refused(cli: Cli) -> None:
    wrong = cli("network", "allow", "http://localhost")
    assert wrong.status != 0
    assert "is no host" in wrong.err
