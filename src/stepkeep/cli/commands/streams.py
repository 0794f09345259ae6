"""`stepkeep streams` and `stepkeep tail`: what runs have of streams, and streams as they grow."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

from stepkeep.cli.answering import find_run, open_engine, table
from stepkeep.cli.arguments import Text, arg, opt
from stepkeep.cli.command import Commands, CommandValues, program
from stepkeep.cli.printer import SUCCEEDED, answer, say, warn
from stepkeep.cli.settings import Settings
from stepkeep.edges.safe_text import inert

if TYPE_CHECKING:
    from stepkeep.operations.streams.reading import StreamList, StreamPage, StreamPiece

streams = Commands("streams", "Durable streams of runs.")
RUN = arg("RUN", "The id of a run, or a part of it.")
MOST_SHOWN = 100_000
"""How many characters of a chunk are shown."""


@streams.operation("list", "streams.list", run_id=RUN)
def list_streams(found: StreamList, _: CommandValues) -> None:
    """List the streams of a run, and how much they have."""
    table(found.streams, "the run has no streams: a handler writes one with `ctx.stream(name).write(chunk)`")


@streams.operation(
    "read",
    "streams.read",
    run_id=RUN,
    name=arg("NAME", "The name of a stream; `*` for all of them."),
    step=opt("--step", "STEP", "Only what this step has written.", show_default=False),
    after=opt("--after", "NUMBER", "The number of the last piece that is known."),
    limit=opt("--limit", "NUMBER", "How many pieces at most."),
)
def read_stream(found: StreamPage, _: CommandValues) -> None:
    """Print what was written to a stream, piece by piece."""
    for piece in found.pieces:
        say(f"{piece.number} {piece.step} {piece.name} {piece.position}: {_text(piece)}")


@program.command("tail")
def tail(
    settings: Settings,
    run: Annotated[str, RUN],
    name: Annotated[Text, arg("[NAME]", "The name of a stream; all of them by default.")] = None,
    step: Annotated[Text, opt("--step", "STEP", "Only what this step writes.", show_default=False)] = None,
) -> int:
    """Print a stream of a run as it grows, or all its streams, until the run has ended.

    With --json, one piece per line: its number, its step, its position, its chunks.
    """

    async def go() -> None:
        async with open_engine(settings) as engine:
            named = ""
            async for piece in engine.tail(await find_run(engine, run), name, step=step):
                if settings.json:
                    answer(piece)
                    continue
                title = f"{piece.step} {piece.name}"
                if piece.restart:
                    warn(f"{title} starts again" + (f" after {piece.keeps}" if piece.keeps else ""))
                if name is None and title != named:
                    say(f"— {inert(title, MOST_SHOWN)}")
                named = title
                say(_text(piece))

    asyncio.run(go())
    return SUCCEEDED


def _text(piece: StreamPiece) -> str:
    """The chunks of a piece: texts together, other values and lines of a log one after the other."""
    lines: list[str] = []
    is_open = False
    for chunk in piece.chunks:
        if isinstance(chunk, str) and is_open:
            lines[-1] += chunk
        else:
            lines.append(chunk if isinstance(chunk, str) else _line_of(chunk))
        is_open = isinstance(chunk, str)
    return "\n".join(inert(line, MOST_SHOWN) for line in lines)


def _line_of(chunk: Any) -> str:
    import msgspec

    if isinstance(chunk, dict) and chunk.keys() == {"at", "level", "text"}:
        return f"{chunk['at']} {chunk['level']} {chunk['text']}"
    return msgspec.json.encode(chunk).decode()
