"""`stepkeep lab forgeries`: forges true logs in every kind and reports the share that the judge finds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepkeep.cli.arguments import LARGEST
from stepkeep.cli.printer import answer, say
from stepkeep.cli.settings import Settings
from stepkeep.cli.status import FAILED, SUCCEEDED
from stepkeep.errors import InvalidInput

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
    report: Annotated[
        str | None, typer.Option("--report", metavar="DIR", help="Write the shares and some missed forgeries there.")
    ] = None,
) -> int:
    """Forge true logs: every kind of forgery in every dialect, with and without a recomputed chain.

    Exit status 1 when a true log gives a finding, or when a kind that can be detected is missed.
    """
    from stepkeep_lab.forgeries.campaign import forge_seeds, judge_seeds

    corpus = forge_seeds(seeds, first=first, tries=tries) if tries else judge_seeds(seeds, first=first)
    if report is not None:
        _write(corpus, report)
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
            say(f"{kind.words:<11} {kind.name:<34} {kind.found}/{kind.tried} found: {kind.what}")
    tried = sum(kind.tried for kind in corpus.kinds)
    listed = sum(kind.undetectable is not None for kind in corpus.kinds)
    missed = sum(not kind.ok for kind in corpus.kinds)
    say(
        f"{corpus.logs:,} true logs, {len(corpus.accused)} with a finding; {len(corpus.kinds)} kinds "
        f"({listed} undetectable, {missed} missed at least once), {tried:,} forgeries, {corpus.share:.1%} found"
    )


def _write(corpus: Corpus, folder: str) -> None:
    import msgspec

    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        content = msgspec.json.format(msgspec.json.encode(corpus.as_json()), indent=2)
        (path / "forgeries.json").write_bytes(content + b"\n")
        for kind in corpus.kinds:
            for place, (_, lines) in enumerate(kind.missed if kind.undetectable is None else ()):
                (path / f"{kind.words}-{kind.name}-{place}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"--report: {folder} cannot be written: {error.strerror}.") from None
