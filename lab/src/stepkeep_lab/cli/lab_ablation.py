"""`stepkeep lab ablation`: measures the gain of each shortcut of the hot path."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stepkeep.cli.printer import SUCCEEDED, answer, say, warn
from stepkeep.cli.settings import Settings

WORKS = ("3-step runs", "10-step runs", "starts", "one 3-step run, idle")


def ablation(
    settings: Settings,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="Only this shortcut (repeatable).")
    ] = None,
    work: Annotated[list[str] | None, typer.Option("--work", metavar="WORK", help="Measure this (repeatable).")] = None,
    store: Annotated[list[str] | None, typer.Option("--store", help="Only sqlite, or only postgres.")] = None,
    rounds: Annotated[int, typer.Option("--rounds", min=1, max=1_000, help="How often each variant is measured.")] = 5,
    report: Annotated[
        str | None, typer.Option("--report", metavar="DIR", help="Write ablation.json and ablation.md there.")
    ] = None,
) -> int:
    """Measure the engine with all its shortcuts and without each, in turns, and print what each gains.

    A ratio above 1 is a gain. Use a quiet machine: ratios of a busy one mean nothing.
    """
    import msgspec

    from stepkeep_lab.bench.ablation import as_markdown, measure
    from stepkeep_lab.bench.machine import machine

    gains = measure(
        tuple(work or WORKS), tuple(store or ("postgres", "sqlite")), only=tuple(only or ()), rounds=rounds, told=warn
    )
    found = {"machine": machine(), "rounds": rounds, "gains": msgspec.to_builtins(gains)}
    if report is not None:
        folder = Path(report)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "ablation.json").write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
        (folder / "ablation.md").write_text(as_markdown(gains, rounds), encoding="utf-8")
    if settings.json:
        answer({"ablation": found})
    else:
        say(as_markdown(gains, rounds))
    return SUCCEEDED
