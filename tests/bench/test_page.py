"""The page on benchmarks names every work and every peer there is, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from stepkeep_lab.bench.peers import find_peers
from stepkeep_lab.bench.works import WORKS

HERE = Path(__file__).parents[2]
PAGE = (HERE / "docs" / "benchmarks.md").read_text(encoding="utf-8")


def test_every_work_is_documented_and_no_other() -> None:
    assert sorted(re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)) == sorted(work.name for work in WORKS)


def test_every_peer_is_documented_and_no_other() -> None:
    table = PAGE.partition("| peer | how it runs |")[2].partition("\n\n")[0]
    titles = [peer.title for peer in find_peers(HERE / "benchmarks" / "peers")]
    assert sorted(re.findall(r"^\| (\w+) \|", table, re.MULTILINE)) == sorted(titles)
