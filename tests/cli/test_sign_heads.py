"""`stepkeep evidence --sign-heads`: what was signed, what comes next, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Cli


def test_the_heads_of_finished_runs_are_signed_once(cli: Cli, tmp_path: Path) -> None:
    key = str(tmp_path / "signing.key")
    assert cli("evidence", "--new-key", key).status == 0
    file = tmp_path / "hello.yaml"
    file.write_text("workflow: hello\ntimeout: 1h\nsteps:\n  - {name: a, sleep: 1ms}\n")
    assert cli("run", str(file)).status == 0
    signed = cli("evidence", "--sign-heads", "--sign-with", key)
    assert (signed.status, signed.err) == (0, "")
    assert "1 heads of finished runs are signed with key" in signed.out
    assert "on a timer" in signed.out
    again = json.loads(cli("evidence", "--sign-heads", "--sign-with", key, "--json").out)["signed_heads"]
    assert (again["signed"], again["is_complete"]) == (0, True)


def test_signing_needs_a_key_and_nothing_beside_it(cli: Cli, tmp_path: Path) -> None:
    assert "--sign-with FILE" in cli("evidence", "--sign-heads").err
    assert "Say what to do" in cli("evidence", "--sign-heads", "--new-key", str(tmp_path / "k")).err
    assert cli("db", "migrate").status == 0
    (tmp_path / "other").write_text("no key")
    refused = cli("evidence", "--sign-heads", "--sign-with", str(tmp_path / "other"))
    assert refused.status != 0
    assert "holds no signing key" in refused.err
