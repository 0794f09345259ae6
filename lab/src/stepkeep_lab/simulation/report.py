"""The report of a long campaign: JSON for programs, a page for people, without paths and names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from stepkeep_lab.simulation.campaign import COUNTS, MUTANT_SEEDS, Campaign, Failure, Score
from stepkeep_lab.simulation.coverage import UNREACHABLE, table_rows


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What was played on which code and machine, what was violated, and which planted bugs were caught."""

    commit: str
    machine: dict[str, str]
    wanted: int
    campaign: Campaign
    scores: tuple[Score, ...]

    @property
    def missed(self) -> list[str]:
        return [score.name for score in self.scores if score.seeds is None]

    @property
    def ok(self) -> bool:
        return not self.campaign.failures and not self.missed and self.campaign.runs >= self.wanted


def as_json(report: Report) -> dict[str, Any]:
    """Everything, as plain data."""
    return {
        "ok": report.ok,
        "commit": report.commit,
        "machine": report.machine,
        "simulation": report.campaign.as_json(),
        "mutants": {
            "caught": len(report.scores) - len(report.missed),
            "of": len(report.scores),
            "scores": msgspec.to_builtins(report.scores),
        },
    }


def page(report: Report) -> str:
    """The same for people, in Markdown."""
    campaign = report.campaign
    lines = [
        "# Simulation report",
        "",
        f"Commit `{report.commit}`. {', '.join(report.machine.values())}.",
        "",
        f"Verdict: **{_verdict(report)}**.",
        "",
        *_table(("what", "how much"), _figures(campaign)),
        "",
        f"Digest over all histories: `{campaign.digest}`. The same command on the same commit gives the same one:",
        "",
        "```console",
        f"$ stepkeep lab campaign --runs {report.wanted} --from {campaign.first} --report DIR",
        "```",
        "",
    ]
    for name in COUNTS:
        lines += [f"## {TITLES[name]}", "", *_table(("what", "count"), _counts(getattr(campaign, name))), ""]
    lines += ["## Reached", "", *_reached(campaign), ""]
    if campaign.failures:
        lines += ["## Violations", "", *(line for failure in campaign.failures for line in _failure(failure)), ""]
    if report.scores:
        lines += ["## Planted bugs", "", _caught(report), "", *_scores(report.scores), ""]
    return "\n".join(lines)


TITLES = {
    "written_in": "Runs by the format they were written in",
    "ended": "How runs ended",
    "faults": "Faults",
    "refusals": "Refusals",
    "met": "What met",
}


def _verdict(report: Report) -> str:
    if report.campaign.failures:
        return f"{len(report.campaign.failures)} seeds FAILED"
    if report.missed:
        return f"no violation, but planted bugs were missed: {', '.join(report.missed)}"
    return "no violation"


def _figures(campaign: Campaign) -> list[tuple[str, str]]:
    return [
        ("seeds", f"{campaign.seeds:,} ({campaign.first:,} to {campaign.following - 1:,})"),
        ("runs", f"{campaign.runs:,}"),
        ("steps of runs", f"{campaign.steps:,}"),
        ("transactions, each audited", f"{campaign.commits:,}"),
        ("effects of handlers", f"{campaign.effects:,}"),
        ("faults", f"{sum(campaign.faults.values()):,}"),
        ("virtual time", f"{campaign.virtual_seconds / 3600:,.0f} hours"),
        ("time", f"{campaign.seconds / 60:,.0f} minutes"),
        ("violations", f"{len(campaign.failures):,}"),
    ]


def _counts(counts: Mapping[str, int]) -> list[tuple[str, str]]:
    return [(name, f"{counts[name]:,}") for name in sorted(counts)]


def _reached(campaign: Campaign) -> list[str]:
    rows = table_rows()
    said = [f"{len(campaign.rows & rows)} of {len(rows)} rows of the tables of run, step and worker were taken."]
    if campaign.unreached:
        said += ["", "Never reached:", "", *(f"- {what}" for what in campaign.unreached)]
    else:
        said += ["Every fault, every refusal and every meeting that is looked for happened."]
    left_out = [f"- {kind}: {source} by {trigger}: {why}" for (kind, source, trigger), why in UNREACHABLE.items()]
    return [*said, "", "Rows that nothing in the engine takes so far, and which do not count:", "", *left_out]


def _failure(failure: Failure) -> list[str]:
    said = [f"- seed {failure.seed}: `{failure.command}`, smaller: `{failure.shrunk_command}`"]
    return said + [f"  - {violation}" for violation in failure.violations[:10]]


def _caught(report: Report) -> str:
    caught = len(report.scores) - len(report.missed)
    return f"{caught} of {len(report.scores)} were caught within {MUTANT_SEEDS:,} seeds each."


def _scores(scores: Sequence[Score]) -> list[str]:
    rows = [
        (score.name, score.what, "MISSED" if score.seeds is None else f"{score.seeds:,}", _in_short(score.violation))
        for score in scores
    ]
    return _table(("bug", "what it means", "seeds until caught", "caught by"), rows)


def _in_short(violation: str) -> str:
    """What a violation is about, without the names of runs."""
    return violation.split(":")[0]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
