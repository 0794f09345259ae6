"""Seed 003 section 5: a view is one moment of a run, and evidence that was shown never changes.

`stepkeep lab views` reads ten thousand views of each store.
"""

from __future__ import annotations

import asyncio

from stepkeep_lab.storecheck.live_views import watch


def test_views_of_runs_that_go_on_contradict_nothing_and_their_evidence_only_grows(database_url: str) -> None:
    watched = asyncio.run(watch(database_url, 300))
    assert watched.findings == []
    assert watched.views >= 300
    assert watched.unfinished > 20, "hardly any run was seen while it went on: nothing was shown"
