"""`stepkeep lab neighbour`: what one tenant's worst over HTTP does to another tenant of the same service."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from stepkeep.cli.printer import FAILED, SUCCEEDED, answer, say
from stepkeep.cli.settings import Settings
from stepkeep.kernel.errors import InvalidInput
from stepkeep_lab.reports import commit, opening, table, write_report

COLUMNS = ("store", "quiet p50", "quiet p99", "attacked p50", "attacked p99", "raised by", "attacked most")


def neighbour(
    settings: Settings,
    seconds: Annotated[float, typer.Option("--seconds", min=1, max=3_600, help="How long the attack lasts.")] = 60.0,
    store: Annotated[
        list[str] | None, typer.Option("--store", metavar="NAME", help="sqlite or postgres (repeatable); both.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="KIND", help="Only this kind of attack (repeatable).")
    ] = None,
    report: Annotated[
        str | None, typer.Option("--report", metavar="DIR", help="Write neighbour.json and neighbour.md there.")
    ] = None,
) -> int:
    """Let one tenant do its worst over HTTP, and measure the requests of another one, quiet and meanwhile.

    Schemas, expressions, messages, inputs, reads, unread bodies, long polls and streams at once, against a service on
    loopback. Exit status 1 if the other tenant's p99 rises by 100 ms or more.
    """
    from stepkeep_lab.bench.attack import KINDS
    from stepkeep_lab.bench.ground import STORES
    from stepkeep_lab.bench.neighbour import MOST_MS, measure

    if unknown := [name for name in store or () if name not in STORES]:
        raise InvalidInput(f"--store {unknown[0]!a}: there is sqlite and postgres.")
    begun = time.monotonic()
    if unknown := [name for name in only or () if name not in KINDS]:
        raise InvalidInput(f"--only {unknown[0]!a}: there are {', '.join(KINDS)}.")
    found = measure(tuple(store or STORES), seconds=seconds, only=only or ())
    rows = [
        (
            one.store,
            *(f"{part:.1f} ms" for part in (one.quiet.p50_ms, one.quiet.p99_ms, one.attacked.p50_ms)),
            *(f"{part:.1f} ms" for part in (one.attacked.p99_ms, one.raised_ms, one.attacked.most_ms)),
        )
        for one in found
    ]
    is_ok = all(one.ok for one in found)
    told = {
        "ok": is_ok,
        "most_raised_ms": MOST_MS,
        "seconds": seconds,
        "stores": [
            {"store": one.store, "raised_ms": round(one.raised_ms, 1), "quiet": one.quiet, "attacked": one.attacked}
            | {"answers": one.answers}
            for one in found
        ],
    }
    lines = table(COLUMNS, rows)
    for one in found:
        lines += ["", f"{one.store}, answers to the attacker: {', '.join(f'{k}: {v}' for k, v in one.answers.items())}"]
    if report is not None:
        command = f"stepkeep lab neighbour --seconds {seconds:g}"
        head = opening("One tenant's worst, and its neighbour", commit(), command, time.monotonic() - begun)
        write_report(
            report, "neighbour", {"commit": commit(), "command": command} | told, "\n".join([*head, *lines, ""])
        )
    if settings.json:
        import msgspec

        answer({"neighbour": msgspec.to_builtins(told)})
    else:
        for line in lines:
            say(line)
    return SUCCEEDED if is_ok else FAILED
