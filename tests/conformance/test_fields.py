"""Every field of real logs is in the documentation's tables: checked against something, or free with a reason."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.conformance.logs import log_of
from tests.conformance.tellings import dialects, stories, told, walks

from stepkeep.conformance.schema import OPENING_LINE

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"


def documented() -> set[str]:
    text = PAGE.read_text().split("## Every field, and what it is checked against")[1].split("\n## ")[0]
    cells = [row.split("|")[1] for row in text.splitlines() if row.startswith("| `")]
    return {name.removeprefix("metadata.") for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_every_field_of_real_logs_is_checked_or_listed_as_free() -> None:
    found = set(OPENING_LINE.required) | {"worker_id"}
    for world in [*stories(), *walks(40, seed=11)]:
        lines = [json.loads(raw) for raw in log_of(world)]
        for judged in dialects():
            lines += told(world, judged)
        for line in lines:
            found |= (line.keys() - {"metadata"}) | line["metadata"].keys()
    assert found - documented() == set()
    assert documented() - found == set()
