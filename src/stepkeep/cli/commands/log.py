"""`stepkeep log`: write runs' journals as logs, and check such logs against the rules they must obey."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, cast

from stepkeep.cli.arguments import As, arg, opt
from stepkeep.cli.asking import find_run, open_engine
from stepkeep.cli.command import Commands
from stepkeep.cli.printer import answer, binary_output, say
from stepkeep.cli.settings import Needs, Settings
from stepkeep.cli.status import FAILED, SUCCEEDED
from stepkeep.edges.safe_text import inert_json
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from stepkeep.conformance.report import Report
    from stepkeep.engine import AsyncEngine

log = Commands("log", "Export and verify transition logs.")


@log.command("export")
def export(
    settings: Settings,
    runs: Annotated[list[str] | None, arg("[RUN]...", "Which runs; or --all.")] = None,
    every: Annotated[bool, opt("--all", "All runs of the tenant.")] = False,
    output: Annotated[str | None, opt("--output", "-o", "FILE", "Where to; standard output by default.")] = None,
    workers: Annotated[bool, opt("--workers", "With the workers, all journals in the order of time.")] = False,
    append: Annotated[bool, opt("--append", "Add to FILE if it exists.")] = False,
    force: Annotated[bool, opt("--force", "Replace FILE if it exists.")] = False,
    as_: As = None,
) -> int:
    """Write journals as lines of JSON: one per change of state, and a closing one per run.

    An existing FILE is refused without --append or --force.
    With --as, the lines are in a dialect's words, and changes that it does not see are left out.
    """
    if append and force:
        raise InvalidInput("--append keeps the lines of FILE, --force replaces them; give one of them.")
    if output is None and (append or force):
        raise InvalidInput("--append and --force are about a file: name it with --output.")
    if bool(runs) == every:
        raise InvalidInput("Say which runs to export: name them, or give --all.")
    if settings.json and output is None:
        raise InvalidInput("log export writes lines, not one object: with --json, name a file with --output.")
    count = asyncio.run(
        _export(settings, runs or [], output, "ab" if append else "wb" if force else "xb", as_, workers)
    )
    if settings.json:
        answer({"export": {"file": output, "lines": count}})
    elif output is not None:
        say(f"{count:,} lines written to {output}")
    return SUCCEEDED


@log.command("verify", Needs.NOTHING)
def verify(
    settings: Settings,
    file: Annotated[str, arg("FILE", "A log, packed or not, or an archive's manifest; - reads a pipe.")],
    as_: As = None,
) -> int:
    """Check a log: every transition legal, nothing missing, changed or reordered. Exit status 1 on findings.

    Of an archive (NAME.manifest.json), its files are compared with the manifest first.
    With --as, the log is one in that dialect's words, judged by that dialect's tables and invariants.
    """
    found = judge(file, as_)
    if settings.json:
        answer(
            {
                "ok": found.ok,
                "lines": found.lines,
                "runs": found.runs,
                "findings": [
                    {"line": one.line, "code": one.code, "run": one.run, "message": one.message}
                    for one in found.findings
                ],
                "omitted": found.omitted,
                "notes": list(found.notes),
            }
        )
        return SUCCEEDED if found.ok else FAILED
    for one in found.findings:
        say(f"{file}:{one.line}: {one.code}: {one.message}")
    if found.omitted:
        say(f"{file}: {found.omitted:,} more findings")
    for note in found.notes:
        say(f"{file}: note: {note}")
    verdict = "no findings" if found.ok else _count(len(found.findings) + found.omitted, "finding")
    say(f"{file}: {_count(found.lines, 'line')}, {_count(found.runs, 'journal')}, {verdict}")
    return SUCCEEDED if found.ok else FAILED


def _count(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number:,} {noun}s"


async def _export(
    settings: Settings, runs: list[str], output: str | None, mode: str, as_: str | None, workers: bool
) -> int:
    for option, is_given in (("--all", not runs), ("--workers", workers)):
        if is_given:
            settings.require_database(f"log export {option}")
    write = write_log if settings.server is None else write_log_of_service
    async with open_engine(settings, operation="log") as engine:
        chosen = [await find_run(engine, run) for run in runs]
        if output is None:
            return await write(engine, chosen, binary_output(), as_, workers=workers)
        try:
            with _opened(Path(output), mode) as file:
                return await write(engine, chosen, file, as_, workers=workers)
        except FileExistsError:
            raise InvalidInput(f"{output} exists. Give --append to add to it, or --force to replace it.") from None
        except OSError as error:
            raise InvalidInput(f"{output} cannot be written: {error.strerror}.") from None


def _opened(path: Path, mode: str) -> BinaryIO:
    """The file to write to. Devices and pipes hold no log that could be lost."""
    return cast("BinaryIO", path.open(mode if path.is_file() or not path.exists() else "wb"))


async def write_log(
    engine: AsyncEngine, runs: list[str], file: BinaryIO, as_: str | None = None, *, workers: bool = False
) -> int:
    """Write the logs of these runs (none named: of all), or one log with their workers; returns how many lines."""
    from stepkeep.operations.lines import written_line
    from stepkeep.operations.log import export_all, export_run
    from stepkeep.operations.log_together import export_together
    from stepkeep.store.records import RunFilter

    count = 0
    journals = [export_run(engine.transactor, run, tenant=engine.tenant, dialect=as_) for run in runs]
    if workers:
        journals = [export_together(engine.transactor, runs or None, tenant=engine.tenant, dialect=as_)]
    for journal in journals or [export_all(engine.transactor, RunFilter(tenant=engine.tenant), dialect=as_)]:
        async for line in journal:
            file.write(written_line(line))
            count += 1
    file.flush()
    return count


async def write_log_of_service(
    engine: AsyncEngine, runs: list[str], file: BinaryIO, as_: str | None = None, **options: object
) -> int:
    """Write the logs of these runs as a service tells them; returns how many lines."""
    count = 0
    for run in runs:
        lines = await engine.log(run, as_=as_)
        file.writelines(inert_json(line.decode()).encode() for line in lines)
        count += len(lines)
    file.flush()
    return count


def judge(file: str, as_: str | None = None) -> Report:
    """The verdict on a log file or an archive, in canonical names or in a dialect's words."""
    from stepkeep.conformance.archive import MANIFEST, Unpacked, open_log, unpacked, verify_archive
    from stepkeep.conformance.arrows import REFERENCE
    from stepkeep.conformance.validate import validate
    from stepkeep.dialects import registry
    from stepkeep.dialects.registry import judged

    if as_ is not None:
        judged(as_)  # Refuses an unknown name, with a suggestion.

    def verdict(log: BinaryIO) -> Report:
        lines = Unpacked(log)
        return lines.judged(validate(lines, as_, registry.judged)[1])

    try:
        if file == "-":
            return verdict(unpacked(sys.stdin.buffer))
        if file.endswith(MANIFEST):
            if as_ is not None:
                raise InvalidInput("archives are in canonical names; leave --as away.")
            return verify_archive(Path(file), REFERENCE)
        with open_log(Path(file)) as log:
            return verdict(log)
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror or error}.") from None
