"""The report of a campaign of forgeries: the share found for each kind of log, and what stayed hidden by class.

Pure: it gets the result, the commit and the command. `stepkeep lab forgeries` calls it.
"""

from __future__ import annotations

from collections.abc import Iterable

from stepkeep_lab.forgeries.campaign import Corpus, Tally
from stepkeep_lab.forgeries.undetectable import CLASSES
from stepkeep_lab.reports import opening, table


def page(corpus: Corpus, commit: str, command: str, seconds: float) -> str:
    """The result in Markdown."""
    kinds = corpus.kinds
    told = f"{corpus.logs:,} true logs of {corpus.runs:,} runs, {len(corpus.accused)} with a finding."
    lines = [*opening("Forged logs" if kinds else "True logs", commit, command, seconds), told, ""]
    lines += [f"- {said}" for said in corpus.accused[:20]]
    if kinds:
        names = ("tried", "found", "beside", "hidden", "unchained", "unchained_found")
        tried, found, beside, hidden, unchained, seen = (sum(getattr(kind, name) for kind in kinds) for name in names)
        lines += [
            f"{len(kinds):,} kinds, {tried:,} forgeries with a recomputed chain: {found:,} found",
            f"({found / tried:.1%}),",
            f"{beside:,} found beside the canonical log alone,",
            f"{hidden:,} undetectable by their class, {tried - found - beside - hidden:,} missed.",
            f"Without a recomputed chain, {seen:,} of {unchained:,} are found.",
            "",
            *_by_words(kinds),
            "",
            *_by_class(kinds),
            "",
            *(f"- missed: {kind.words} {kind.name}: {kind.what}" for kind in kinds if not kind.ok),
        ]
    else:
        lines += table(("ending", "logs"), list(corpus.endings.items()))
    return "\n".join(lines).rstrip() + "\n"


def _by_words(kinds: Iterable[Tally]) -> list[str]:
    rows = []
    for words in dict.fromkeys(kind.words for kind in kinds):
        some = [kind for kind in kinds if kind.words == words]
        tried, found = sum(kind.tried for kind in some), sum(kind.found for kind in some)
        whole = sum(kind.found == kind.tried for kind in some)
        beside, hidden = (sum(getattr(kind, name) for kind in some) for name in ("beside", "hidden"))
        rows.append((words, len(some), whole, tried, found, f"{found / tried:.1%}", beside, hidden))
    columns = (
        "log",
        "kinds",
        "always found",
        "forgeries",
        "found alone",
        "share",
        "beside its journal",
        "undetectable",
    )
    return table(columns, rows)


def _by_class(kinds: Iterable[Tally]) -> list[str]:
    rows = []
    for one in CLASSES:
        met = [kind for kind in kinds if one.name in kind.undetectable]
        forgeries = sum(kind.undetectable[one.name] for kind in met)
        rows.append((one.what, forgeries, len(met)))
    return table(("undetectable class", "forgeries", "kinds"), rows)
