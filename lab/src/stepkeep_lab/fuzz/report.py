"""The report of a campaign: JSON for programs, a page for people, both with what repeats it: command and commit."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import msgspec

from stepkeep_lab.fuzz.campaign import Campaign, Score
from stepkeep_lab.fuzz.play import Finding

NAME = "fuzz"


def as_json(campaign: Campaign, commit: str) -> dict[str, Any]:
    """Everything, as plain data."""
    return {
        "ok": campaign.ok,
        "commit": commit,
        "python": platform.python_version(),
        "command": command(campaign),
        "cases": campaign.cases,
        **msgspec.to_builtins(campaign),
    }


def command(campaign: Campaign) -> str:
    """The command that plays the same cases; with a bound on time, another machine may play more or fewer."""
    first = f" --from {campaign.first}" if campaign.first else ""
    bound = "" if campaign.seconds_each is None else f" --seconds {campaign.seconds_each:g}"
    return f"stepkeep lab fuzz --seed {campaign.seed}{first} --count {campaign.count}{bound}"


def page(campaign: Campaign, commit: str) -> str:
    """The same for people, in Markdown."""
    lines = [
        "# Fuzzing report",
        "",
        f"**{verdict(campaign)}** in {campaign.seconds:.0f} s.",
        "",
        f"Made at commit `{commit}` with Python {platform.python_version()} by",
        "",
        "```console",
        f"$ {command(campaign)}",
        "```",
        "",
        "| target | cases | broke a promise | processes lost | slowest case, CPU s | memory above the start, MB | s |",
        "|---|---:|---:|---:|---:|---:|---:|",
        *(_row(score) for score in campaign.scores),
        "",
    ]
    for score in campaign.scores:
        lines += _section(score)
    return "\n".join(lines)


def verdict(campaign: Campaign) -> str:
    """The whole campaign in one sentence."""
    found = sum(score.broken.total() for score in campaign.scores)
    given_up = [score.target for score in campaign.scores if score.given_up]
    said = f"{campaign.cases:,} cases, " + (f"{found:,} broke a promise" if found else "no promise was broken")
    return f"{said}; given up early: {', '.join(given_up)}" if given_up else said


def line(score: Score) -> str:
    """One target in one line."""
    outcomes = ", ".join(f"{count:,} {name}" for name, count in score.outcomes.most_common())
    end = " GIVEN UP" if score.given_up else ""
    return f"{score.target:<12} {score.cases:>7,} cases {score.seconds:>6.1f} s  {outcomes}{end}"


def finding_lines(finding: Finding) -> list[str]:
    """A finding for people; everything in it is bounded and without control characters."""
    said = [
        f"FINDING in {finding.target}, seed {finding.seed}, case {finding.number}: {finding.promise}",
        f"  seen:     {finding.detail}",
        f"  input:    {finding.case}",
    ]
    if finding.smallest:
        said.append(f"  smaller:  {finding.smallest}")
    return [*said, f"  again:    {finding.command}"]


def write(campaign: Campaign, folder: Path, commit: str) -> None:
    """`fuzz.json` and `fuzz.md` in this folder."""
    folder.mkdir(parents=True, exist_ok=True)
    encoded = msgspec.json.format(msgspec.json.encode(as_json(campaign, commit)), indent=2)
    (folder / f"{NAME}.json").write_bytes(encoded + b"\n")
    (folder / f"{NAME}.md").write_text(page(campaign, commit), encoding="utf-8")


def _row(score: Score) -> str:
    cells = [
        score.target,
        f"{score.cases:,}",
        f"{score.broken.total():,}",
        str(score.children_lost),
        f"{score.slowest_cpu_seconds:.2f}",
        str(score.peak_mb),
        f"{score.seconds:.0f}",
    ]
    return "| " + " | ".join(cells) + " |"


def _section(score: Score) -> list[str]:
    lines = [f"## {score.target}", "", score.what, "", f"Must hold: {score.holds}", ""]
    lines += [", ".join(f"{name}: {count:,}" for name, count in score.outcomes.most_common()) + ".", ""]
    for promise, count in score.broken.most_common():
        lines += [f"- {count:,} × {promise}"]
    if score.broken:
        lines.append("")
    for finding in score.findings:
        lines += ["```text", *finding_lines(finding), "```", ""]
    return lines
