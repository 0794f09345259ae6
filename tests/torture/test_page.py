"""The page on torture names every scenario there is, and the number of points at which processes die."""

from __future__ import annotations

import re
from pathlib import Path

from stepkeep_lab.torture.campaign import SCENARIOS
from stepkeep_lab.torture.points import POINTS

PAGE = Path(__file__).parent.parent.parent / "docs" / "torture.md"


def test_every_scenario_is_documented_and_no_other() -> None:
    said = PAGE.read_text(encoding="utf-8")
    assert re.findall(r"^\| `([a-z-]+)` \|", said, re.MULTILINE) == list(SCENARIOS)
    assert f"kill -9 at {len(POINTS)} points" in said
