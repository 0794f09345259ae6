"""The report of a hunt: JSON for programs, a page for people, both with the commit and the seed that repeat it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from stepkeep_lab.reports import commit, write_report
from stepkeep_lab.storecheck.hunt import Catch, Hunt, Score, many

NAME = "planted-sql"


def as_json(hunt: Hunt) -> dict[str, Any]:
    """Everything, as plain data."""
    return {
        "ok": hunt.ok,
        "commit": commit(),
        "first_seed": hunt.first,
        "most_lives": hunt.most,
        "caught": len(hunt.scores) - len(hunt.missed),
        "of": len(hunt.scores),
        "seconds": round(hunt.seconds),
        "clean": {store: _plain(catch) for store, catch in hunt.clean.items()},
        "scores": [
            {"name": one.name, "store": one.store, "file": one.file, "what": one.what, **_plain(one.catch)}
            for one in hunt.scores
        ],
    }


def _plain(catch: Catch) -> dict[str, Any]:
    return {**msgspec.to_builtins(catch), "seconds": round(catch.seconds, 1)}


def page(hunt: Hunt) -> str:
    """The same for people, in Markdown."""
    lines = [
        "# Bugs planted in the stores' SQL",
        "",
        f"**{verdict(hunt)}**, within {hunt.most} lives each from seed {hunt.first}, at commit `{commit()}`.",
        "",
        "The stores without any bug, under the same hunters and to the same bound:",
        "",
        *(f"- {store}: {clean(catch)}" for store, catch in hunt.clean.items()),
        "",
        "| bug | file | what it would mean | caught by | after |",
        "|---|---|---|---|---|",
        *(_row(score) for score in hunt.scores),
        "",
    ]
    return "\n".join(lines)


def _row(score: Score) -> str:
    who = score.catch.hunter or "**nobody**"
    return f"| {score.name} | `{score.file}` | {score.what} | {who} | {score.after} |"


def verdict(hunt: Hunt) -> str:
    """The whole hunt in one sentence."""
    caught = f"{len(hunt.scores) - len(hunt.missed)} of {many(len(hunt.scores), 'planted bug')} were caught"
    if hunt.unsound:
        return f"{caught}; {' and '.join(hunt.unsound)} FAILED with nothing planted"
    return caught


def clean(catch: Catch) -> str:
    """What became of a store in which nothing was planted."""
    scenes = f"{many(catch.scenes, 'scene')} with a rival, " if catch.scenes else ""
    return f"{scenes}{many(catch.lives, 'life', 'lives')}, {many(catch.operations, 'operation')}: " + (
        catch.difference or "no difference"
    )


def line(score: Score) -> str:
    """One bug in one line, for the terminal."""
    fate = f"{score.catch.hunter}, after {score.after}" if score.caught else "MISSED"
    return f"{score.name:<38} {fate:<36} {score.what}"


def write(hunt: Hunt, folder: Path) -> None:
    """`planted-sql.json` and `planted-sql.md` in this folder."""
    write_report(folder, NAME, as_json(hunt), page(hunt))
