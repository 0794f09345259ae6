"""`stepkeep schemas`: publish, list, show, and the refusal of a workflow whose schema is not there."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Cli

FLOW = "workflow: shop\ntimeout: 1h\nsteps: [{name: a, uses: x, timeout: 5s, output_schema: {ref: invoice/v1}}]\n"


def test_schemas_are_published_listed_and_shown(cli: Cli, home: Path) -> None:
    (home / "invoice.json").write_text('{"type": "object"}')
    (home / "shop.yaml").write_text(FLOW)
    assert cli("db", "migrate").status == 0
    assert cli("schemas", "list").out == "no schema is published\n"
    refused = cli("publish", "shop.yaml", "--handlers-elsewhere")
    assert refused.status == 2
    assert "Publish it: stepkeep schemas publish FILE --ref invoice/v1" in refused.err
    said = cli("schemas", "publish", "invoice.json", "--ref", "invoice/v1")
    assert said.out.startswith("schema invoice/v1 is published, digest ")
    assert cli("publish", "shop.yaml", "--handlers-elsewhere").status == 0
    assert "invoice/v1" in cli("schemas", "list").out
    [one] = cli("schemas", "list", "--json").json["schemas"]
    assert set(one) == {"ref", "digest", "bytes", "published_at", "published_by"}
    assert json.loads(cli("schemas", "show", "invoice/v1").out) == {"type": "object"}
    assert cli("schemas", "show", "invoice/v1", "--json").json["schema"]["document"] == {"type": "object"}


def test_mistakes_are_told(cli: Cli, home: Path) -> None:
    (home / "invoice.yaml").write_text("type: object\n")
    (home / "other.yaml").write_text("type: array\n")
    (home / "wrong.yaml").write_text("type: nonsense\n")
    assert cli("schemas", "publish", "invoice.yaml", "--ref", "a").status == 0
    changed = cli("schemas", "publish", "other.yaml", "--ref", "a")
    assert (changed.status, "A published schema never changes" in changed.err) == (1, True)
    wrong = cli("schemas", "publish", "wrong.yaml", "--ref", "b")
    assert (wrong.status, "no usable JSON Schema" in wrong.err) == (2, True)
    assert cli("schemas", "publish", "nothing.yaml", "--ref", "b").status == 2
    unknown = cli("schemas", "show", "b")
    assert "there is no schema b" in unknown.err
