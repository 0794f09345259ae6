"""`stepkeep lab forgeries`: forges true logs in every kind and reports the share that the judge finds."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from stepkeep.cli.arguments import LARGEST
from stepkeep.cli.printer import FAILED, SUCCEEDED, answer, say
from stepkeep.cli.settings import Settings
from stepkeep.kernel.errors import InvalidInput
from stepkeep_lab.reports import commit, write_report

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


def packs(
    settings: Settings,
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, max=LARGEST, help="How many seeds of the simulator give the runs.")
    ] = 60,
    first: Annotated[int, typer.Option("--from", metavar="SEED", min=0, max=LARGEST, help="The first of them.")] = 0,
    alterations: Annotated[
        int, typer.Option("--alterations", min=0, max=LARGEST, help="How many packs are altered, at least.")
    ] = 500,
    jobs: Annotated[int, typer.Option("--jobs", min=1, max=1_024, help="How many processes share the work.")] = 1,
    report: Annotated[
        str | None, typer.Option("--report", metavar="DIR", help="Write packs.json and packs.md there.")
    ] = None,
) -> int:
    """Verify evidence packs of simulated runs, and alter some of them in every way that must be found.

    Exit status 1 when a true pack is refused, or an altered one is not.
    """
    from stepkeep_lab.forgeries.packs import check_packs, page

    begun = time.monotonic()
    result = check_packs(seeds, first=first, alterations=alterations, jobs=jobs)
    if report is not None:
        command = f"stepkeep lab packs --from {first} --seeds {seeds} --alterations {alterations}"
        version, seconds = commit(), time.monotonic() - begun
        told = {"commit": version, "command": command, "seconds": round(seconds, 1)}
        write_report(report, "packs", told | msgspec.to_builtins(result), page(result, version, command, seconds))
    if settings.json:
        answer({"packs": msgspec.to_builtins(result)})
    else:
        for said in (*result.accused[:20], *(f"not refused: {one}" for one in result.missed[:20])):
            say(said)
        refused = f"{result.found.total():,} of {result.tried.total():,} altered ones were refused"
        say(f"{result.packs:,} true packs, {len(result.accused)} findings in them; {refused}")
    return SUCCEEDED if result.ok else FAILED


def _show(corpus: Corpus) -> None:
    for said in corpus.accused[:20]:
        say(f"a true log gives a finding: {said}")
    for kind in corpus.kinds:
        if not kind.ok:
            told = f"{kind.found}/{kind.tried} found, {kind.beside} beside its journal, {kind.hidden} undetectable"
            say(f"{kind.words:<11} {kind.name:<34} {told}: {kind.what}")
    tried = sum(kind.tried for kind in corpus.kinds)
    hidden, beside = (sum(getattr(kind, name) for kind in corpus.kinds) for name in ("hidden", "beside"))
    missed = sum(not kind.ok for kind in corpus.kinds)
    say(
        f"{corpus.logs:,} true logs of {corpus.runs:,} runs, {len(corpus.accused)} with a finding; "
        f"{len(corpus.kinds)} kinds ({missed} missed at least once), {tried:,} forgeries, {corpus.share:.1%} found, "
        f"{beside:,} beside the canonical log, {hidden:,} undetectable"
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
