"""`stepkeep hooks`: what happened, what comes next, and as JSON."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from stepkeep.network.signatures import sign, write_key
from tests.cli.conftest import Cli

KEY = b"k" * 24
HOOK = "{hook: billing, scheme: standard, secrets: [BILLING], message: {name: paid, key: '${{ body.order }}'}}"


def test_a_hook_is_added_tried_listed_and_removed(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPKEEP_SECRET_BILLING", write_key(KEY))
    written, recorded = tmp_path / "hook.yaml", tmp_path / "delivery.json"
    written.write_text(HOOK)
    body = '{"order":"o-7"}'
    headers = sign([KEY], id="msg_1", timestamp=int(time.time()), body=body.encode())
    recorded.write_text(json.dumps({"headers": headers, "body": body}))
    added = cli("hooks", "add", str(written))
    assert (added.status, "hook billing is saved" in added.out) == (0, True)
    assert "stepkeep hooks test billing FILE" in added.out
    tried = cli("hooks", "test", "billing", str(recorded))
    assert (tried.status, tried.out.strip()) == (0, "would send, as hook:billing:msg_1")
    recorded.write_text(json.dumps({"headers": headers, "body": body + " "}))
    refused = cli("hooks", "test", "billing", str(recorded), "--json")
    assert (refused.status, refused.json["code"]) == (1, "wrong")
    assert "a message" in cli("hooks", "list").out
    assert cli("hooks", "remove", "billing").status == 0
    assert "there is no hook" in cli("hooks", "list").out
    written.write_text("[]")
    assert cli("hooks", "add", str(written)).status == 2
