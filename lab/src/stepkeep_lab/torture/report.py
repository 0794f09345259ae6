"""The report of a campaign: JSON for programs, a page for people, both with the seed that repeats it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from stepkeep_lab.reports import commit, write_report
from stepkeep_lab.torture.campaign import SCENARIOS, Campaign
from stepkeep_lab.torture.stage import Account

HEADLINES = ("runs", "lost", "doubly committed", "stuck", "duplicate effects")
FENCED = ("late writes tried", "late writes accepted", "fenced writes")
MARKS = {"passed": "passed", "failed": "**FAILED**", "not run": "not run"}


def as_json(campaign: Campaign) -> dict[str, object]:
    """Everything, as plain data."""
    totals = {what: campaign.total(what) for what in (*HEADLINES, *FENCED, "effects", "journal lines judged")}
    return {"ok": campaign.ok, "commit": commit(), "totals": totals, **msgspec.to_builtins(campaign)}


def page(campaign: Campaign) -> str:
    """The same for people, in Markdown."""
    said = ", ".join(f"{name} {version}" for name, version in campaign.versions.items())
    lines = [
        "# Torture report",
        "",
        f"Commit `{commit()}`, seed {campaign.seed}, {_given(campaign)}, {campaign.took:g} s in all. {said}.",
        "",
        f"Verdict: **{'no promise was broken' if campaign.ok else 'FAILED'}**. "
        + ", ".join(f"{what}: {campaign.total(what):,}" for what in (*HEADLINES, *FENCED))
        + ".",
        "",
        "| scenario | database | verdict | " + " | ".join(HEADLINES) + " | late writes tried / accepted | s |",
        "|---|---|---|" + "---:|" * (len(HEADLINES) + 2),
        *(_row(account) for account in campaign.accounts),
        "",
    ]
    for account in campaign.accounts:
        lines += _section(account)
    return "\n".join(lines)


def _given(campaign: Campaign) -> str:
    more = " or as long as it takes to strike everywhere" if campaign.thorough else ""
    return f"{campaign.seconds:g} s of faults per scenario{more}"


def write(campaign: Campaign, folder: Path) -> None:
    """`torture.json` and `torture.md` in this folder."""
    write_report(folder, "torture", as_json(campaign), page(campaign))


def line(account: Account) -> str:
    """One scenario in one line, for the terminal."""
    title = f"{account.scenario} on {account.store}"
    if account.verdict == "not run":
        return f"{title:<32}not run: {account.why}"
    figures = ", ".join(f"{account.counts.get(what, 0)} {what}" for what in HEADLINES)
    return f"{title:<32}{account.verdict:<8}{account.seconds:>6.1f} s  {figures}"


def _row(account: Account) -> str:
    figures = [f"{account.counts.get(what, 0):,}" for what in HEADLINES]
    late = f"{account.counts.get('late writes tried', 0):,} / {account.counts.get('late writes accepted', 0):,}"
    if account.verdict == "not run":
        figures, late = ["–"] * len(HEADLINES), "–"
    cells = [account.scenario, account.store, MARKS[account.verdict], *figures, late, f"{account.seconds:.0f}"]
    return "| " + " | ".join(cells) + " |"


def _section(account: Account) -> list[str]:
    scenario = SCENARIOS.get(account.scenario)
    lines = [f"## {account.scenario} on {account.store}", "", scenario.what if scenario else "", ""]
    if account.verdict == "not run":
        return [*lines, f"Not run: {account.why}.", ""]
    told = [f"{what}: {count:,}" for what, count in sorted(account.counts.items()) if count]
    told += [f"{what}: {value:g}" for what, value in account.measures.items()]
    lines += ["; ".join(told) + ".", ""]
    for finding in account.findings:
        lines += ["```", finding, "```", ""]
    return lines
