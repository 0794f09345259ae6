"""The shapes of the made-up dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Words:
    """A parcel as its sender sees it."""

    def run(self, canonical: Mapping[str, Any], lines: list[dict[str, Any]]) -> dict[str, Any]:
        stands = [line["to_state"] for line in lines if line["event_type"] == "parcel_state_transition"]
        legs = {line["metadata"]["step"]: line["to_state"] for line in lines if "step" in line["metadata"]}
        return {"parcel": canonical["run"]["workflow"], "stands": stands[-1], "legs": legs}

    def summary(self, canonical_run: Mapping[str, Any], shown_state: str) -> dict[str, Any]:
        return {"parcel": canonical_run["workflow"], "stands": shown_state}


WORDS = Words()
