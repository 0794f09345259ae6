"""`stepkeep lab forgeries`: forges true logs in every kind and reports the share that the judge finds."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepkeep.cli.arguments import LARGEST
from stepkeep.cli.printer import answer, say
from stepkeep.cli.settings import Settings
from stepkeep.cli.status import FAILED, SUCCEEDED
from stepkeep.errors import InvalidInput
from stepkeep_lab.cli.lab_campaign import commit
from stepkeep_lab.reports import write_report

if TYPE_CHECKING:
    from stepkeep_lab.forgeries.campaign import Corpus


def forgeries(
    settings: Settings,
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, max=LARGEST, help="How many seeds of the simulator give the true logs.")
    ] = 60,
    first: Annotated[int, typer.Option("--from", metavar="SEED", min=0, max=LARGEST, help="The first of them.")] = 0,
    tries: Annotated[
        int, typer.Option("--tries", min=0, max=1_000, help="How often each kind is tried; 0 judges true logs only.")
    ] = 4,
    jobs: Annotated[
        int, typer.Option("--jobs", min=1, max=1_024, help="How many processes share the work; with --tries 0 only.")
    ] = 1,
    report: Annotated[
        str | None,
        typer.Option(
            "--report",
            metavar="DIR",
            help="Write forgeries.json and forgeries.md there (with --tries 0 true-logs), and what was missed.",
        ),
    ] = None,
) -> int:
    """Forge true logs: every kind of forgery in every dialect, with and without a recomputed chain.

    Exit status 1 when a true log gives a finding, or when a kind that can be detected is missed.
    """
    from stepkeep_lab.forgeries.campaign import forge_seeds, judge_seeds

    if tries and jobs > 1:
        raise InvalidInput("--jobs shares the judging of true logs only: give --tries 0, or leave --jobs out.")
    begun = time.monotonic()
    corpus = forge_seeds(seeds, first=first, tries=tries) if tries else judge_seeds(seeds, first=first, jobs=jobs)
    if report is not None:
        command = f"stepkeep lab forgeries --from {first} --seeds {seeds} --tries {tries}"
        _write(corpus, report, command, time.monotonic() - begun)
    if settings.json:
        answer({"forgeries": corpus.as_json()})
    else:
        _show(corpus)
    return SUCCEEDED if corpus.ok else FAILED


def _show(corpus: Corpus) -> None:
    for said in corpus.accused[:20]:
        say(f"a true log gives a finding: {said}")
    for kind in corpus.kinds:
        if not kind.ok:
            told = f"{kind.found}/{kind.tried} found, {kind.hidden} undetectable"
            say(f"{kind.words:<11} {kind.name:<34} {told}: {kind.what}")
    tried = sum(kind.tried for kind in corpus.kinds)
    hidden = sum(kind.hidden for kind in corpus.kinds)
    missed = sum(not kind.ok for kind in corpus.kinds)
    say(
        f"{corpus.logs:,} true logs of {corpus.runs:,} runs, {len(corpus.accused)} with a finding; "
        f"{len(corpus.kinds)} kinds ({missed} missed at least once), {tried:,} forgeries, {corpus.share:.1%} found, "
        f"{hidden:,} undetectable"
    )


def _write(corpus: Corpus, folder: str, command: str, seconds: float) -> None:
    from stepkeep_lab.forgeries.report import page

    version = commit()
    told = {"commit": version, "command": command, "seconds": round(seconds, 1)}
    name = "forgeries" if corpus.kinds else "true-logs"
    write_report(folder, name, told | corpus.as_json(), page(corpus, version, command, seconds))
    for kind in corpus.kinds:
        for place, (_, lines) in enumerate(kind.missed):
            missed = Path(folder) / f"{kind.words}-{kind.name}-{place}.jsonl"
            missed.write_text("\n".join(lines) + "\n", encoding="utf-8")
