"""The page on fuzzing names every target there is, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from stepkeep_lab.fuzz.campaign import MOST_FINDINGS, MOST_LOST
from stepkeep_lab.fuzz.targets import TARGETS

PAGE = Path(__file__).parent.parent.parent / "docs" / "fuzzing.md"


def test_every_target_is_documented_and_no_other() -> None:
    said = PAGE.read_text(encoding="utf-8")
    assert re.findall(r"^\| `([a-z]+)` \|", said, re.MULTILINE) == list(TARGETS)
    assert f"After {MOST_LOST} lost processes, or {MOST_FINDINGS} cases" in said
