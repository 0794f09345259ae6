"""`stepkeep log`, `state`, `archive`, `prune`, `evidence`: logs with a verdict, files of runs."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, cast

from stepkeep.cli.answering import ask, find_run, of_run, open_engine, print_answer, print_value
from stepkeep.cli.arguments import LARGEST, ArchiveRoot, As, Text, Texts, arg, finite, opt
from stepkeep.cli.command import Commands, program
from stepkeep.cli.printer import SUCCEEDED, binary_output, say, warn
from stepkeep.cli.settings import CommandNeeds, Settings
from stepkeep.edges.safe_text import inert_json
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from stepkeep.conformance.report import Report
    from stepkeep.engine import AsyncEngine
    from stepkeep.evidence.heads import HeadsSigned
    from stepkeep.operations.logs.retention import Pruned, Told
    from stepkeep.operations.logs.run_archive import Swept
    from stepkeep.operations.logs.state_export import Exported


FINDING = ("line", "code", "run", "message")
log = Commands("log", "Export and verify transition logs.")


@log.command("export")
def export(
    settings: Settings,
    runs: Annotated[Texts, arg("[RUN]...", "Which runs; or --all.")] = None,
    every: Annotated[bool, opt("--all", "All runs of the tenant.")] = False,
    output: Annotated[Text, opt("--output", "-o", "FILE", "Where to; standard output by default.")] = None,
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
    said = None if output is None else f"{count:,} lines written to {output}"
    return print_value(settings, {"export": {"file": output, "lines": count}}, said)


@log.command("verify", CommandNeeds.NOTHING)
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
    view = {name: getattr(found, name) for name in ("ok", "lines", "runs", "findings", "omitted", "notes")}
    view["findings"] = [{name: getattr(one, name) for name in FINDING} for one in found.findings]

    def words() -> Iterator[str]:
        for one in found.findings:
            yield f"{file}:{one.line}: {one.code}: {one.message}"
        if found.omitted:
            yield f"{file}: {found.omitted:,} more findings"
        for note in found.notes:
            yield f"{file}: note: {note}"
        verdict = "no findings" if found.ok else _count(len(found.findings) + found.omitted, "finding")
        yield f"{file}: {_count(found.lines, 'line')}, {_count(found.runs, 'journal')}, {verdict}"

    return print_value(settings, view, words(), failed=not found.ok)


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
    from stepkeep.operations.logs.lines import written_line
    from stepkeep.operations.logs.log import export_all, export_run, export_together
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
    from stepkeep.conformance.machines import REFERENCE
    from stepkeep.conformance.validate import MANIFEST, Unpacked, open_log, unpacked, validate, verify_archive
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


state = Commands("state", "Write the state files of workstreams.")


@state.command("export", CommandNeeds.DATABASE)
def export_state(
    settings: Settings,
    folder: Annotated[str, arg("DIR", "The folder of state files, such as .state.")],
    runs: Annotated[Texts, arg("[RUN]...", "Which runs; the newest of each workstream by default.")] = None,
    follow: Annotated[bool, opt("--follow", "Keep the files current until interrupted.")] = False,
    interval: Annotated[
        float, opt("--interval", "SECONDS", "How often to look.", min=0.05, max=3600, callback=finite)
    ] = 1.0,
) -> int:
    """Write current.json, dag_WS.json, execution_plan_WS.json, checkpoints/WS_latest.json and transitions.jsonl.

    transitions.jsonl has every transition of all workstreams and workers; lines are only appended. With RUN, it has
    these runs. All other files are replaced as a whole. The database stays the state.
    """
    if follow and settings.json:
        raise InvalidInput("--follow tells line by line, not as one object: leave --json away.")
    try:
        done = asyncio.run(_export_state(settings, folder, runs or [], follow, interval))
    except KeyboardInterrupt:
        return SUCCEEDED
    if done is None:
        return SUCCEEDED
    view = {name: getattr(done, name) for name in ("folder", "workstreams", "files", "lines")}
    return print_value(settings, {"export": view}, _state_words(done))


async def _export_state(
    settings: Settings, folder: str, runs: list[str], follow: bool, interval: float
) -> Exported | None:
    from stepkeep.operations.logs.state_export import StateFolder

    async with open_engine(settings, operation="log") as engine:
        chosen = [await find_run(engine, run) for run in runs]
        files = StateFolder(engine.transactor, Path(folder), tenant=engine.tenant, run_ids=chosen)
        if not follow:
            return await files.write()
        async for done in files.follow(interval):
            say(_state_words(done))
        return None


def _state_words(done: Exported) -> str:
    if not done.workstreams:
        return f"no workstream has a run; {done.folder}/current.json says so"
    said = f"{len(done.workstreams)} workstreams" if len(done.workstreams) > 1 else done.workstreams[0]
    return f"{done.folder}: {said}; {done.files} files written, {done.lines} lines appended"


@program.command("archive", CommandNeeds.DATABASE)
def archive(
    settings: Settings,
    runs: Annotated[Texts, arg("[RUN]...", "Which ended runs; by default all whose workflow declares it.")] = None,
    to: Annotated[
        str, opt("--to", "DIR", "Where the named runs go; a declaration names its own folder.")
    ] = ".state/archive",
    archive_root: ArchiveRoot = Path(),
) -> int:
    """Archive ended runs, one folder each: log, everything else, manifest, and the state files of a workstream.

    A run that is archived already is left as it is. Exit status 1 if a run could not be archived.
    """
    swept = asyncio.run(_archive(settings, runs or [], to, archive_root))
    bundles = [
        {"run": one.run_id, "workflow": one.workflow, "state": one.state, "folder": one.folder, "made": one.made}
        for one in swept.bundles
    ]
    view = {"bundles": bundles, "problems": [{"run": run_id, "why": why} for run_id, why in swept.problems]}

    def words() -> Iterator[str]:
        for one in swept.bundles:
            yield f"{one.folder}  {one.workflow} {one.state}" + ("" if one.made else ", was archived before")
        for run_id, why in swept.problems:
            yield f"run {run_id}: {why}"
        made = sum(one.made for one in swept.bundles)
        said = f"{made} {'run' if made == 1 else 'runs'} archived"
        yield f"{said}; verify one with: stepkeep log verify FOLDER/NAME.manifest.json" if made else said

    return print_value(settings, {"archive": view}, words(), failed=swept.problems)


async def _archive(settings: Settings, runs: list[str], to: str, root: Path) -> Swept:
    from stepkeep.operations.logs.run_archive import ArchiveSweeper, Swept, archive_run

    async with open_engine(settings, operation="log") as engine:
        if not runs:
            return await ArchiveSweeper(engine.transactor, tenant=engine.tenant, verify=verified, base=root).sweep()
        chosen = [await find_run(engine, run) for run in runs]
        return Swept(
            bundles=tuple(
                [
                    await archive_run(engine.transactor, run, Path(to), tenant=engine.tenant, verify=verified)
                    for run in chosen
                ]
            )
        )


def verified(manifest: Path) -> Iterator[str]:
    """What the judge finds wrong with an archive."""
    from stepkeep.worker.chores.archives import verified as found

    yield from found(manifest)


TOLD_EVERY = 1.0
"""Seconds between two lines of progress."""


@program.command("prune", CommandNeeds.DATABASE)
def prune(
    settings: Settings,
    older_than: Annotated[Text, opt("--older-than", "DURATION", "Only runs that ended so long ago: 30d.")] = None,
    keep: Annotated[int | None, opt("--keep", "N", "Spare the newest N finished runs.", min=0, max=LARGEST)] = None,
    workflow: Annotated[Text, opt("--workflow", "NAME", "Only runs of this one; --keep counts its runs.")] = None,
    archive: Annotated[Text, opt("--archive", "DIR", "Where archives go; nothing else is deleted.")] = None,
    no_archive: Annotated[bool, opt("--no-archive", "Delete without a trace.")] = False,
    forget_keys: Annotated[
        Text, opt("--forget-keys", "DURATION", "Also idempotency keys of runs that are gone, so old: 90d.")
    ] = None,
    forget_audit: Annotated[
        Text, opt("--forget-audit", "DURATION", "Also entries of the audit log, so old: 400d.")
    ] = None,
    forget_firings: Annotated[
        Text, opt("--forget-firings", "DURATION", "Also firings of triggers whose runs are gone, so old: 90d.")
    ] = None,
    forget_jobs: Annotated[
        Text, opt("--forget-jobs", "DURATION", "Also jobs that ended so long ago, with their keys: 90d.")
    ] = None,
    dry_run: Annotated[bool, opt("--dry-run", "Only count what would go.")] = False,
    batch: Annotated[int, opt("--batch", "How many runs are deleted in one transaction.", min=1, max=10_000)] = 500,
) -> int:
    """Archive finished runs, then delete them: those that every limit given lets go.

    It may be stopped at any time and run again. A run whose journal is flawed is neither archived nor deleted, and
    makes the exit status 1.
    """
    if not dry_run and (archive is not None) == no_archive:
        raise InvalidInput("Say where archives go: --archive DIR. Or give --no-archive to delete without a trace.")
    names = "older_than keep workflow archive forget_keys forget_audit forget_firings forget_jobs dry_run batch"
    typed = locals()
    options: dict[str, Any] = {name: typed[name] for name in names.split()}
    pruned = ask(settings, lambda engine: engine.prune(told=_progress(), **options))
    counts = ("found", "kept", "archived", "deleted", "keys", "audit", "firings", "jobs", "archives")
    view = {"dry_run": dry_run, **{name: getattr(pruned, name) for name in counts}}
    view["flawed"] = [{"run": run_id, "why": why} for run_id, why in pruned.flawed]
    flawed = [f"run {run_id} stays: {why}" for run_id, why in pruned.flawed]
    said = (*flawed, *pruned.archives, _summary(pruned, dry_run=dry_run))
    return print_value(settings, {"prune": view}, said, failed=flawed)


def _summary(pruned: Pruned, *, dry_run: bool) -> str:
    kept = f", {pruned.kept:,} kept longer by their workflows" if pruned.kept else ""
    if dry_run:
        return f"{pruned.found:,} finished runs would go{kept}"
    keys = f", {pruned.keys:,} idempotency keys forgotten" if pruned.keys else ""
    keys += f", {pruned.audit:,} audit entries forgotten" if pruned.audit else ""
    keys += f", {pruned.firings:,} firings forgotten" if pruned.firings else ""
    keys += f", {pruned.jobs:,} jobs forgotten" if pruned.jobs else ""
    noun = "run" if pruned.archived == 1 else "runs"
    return f"{pruned.archived:,} {noun} archived, {pruned.deleted:,} deleted{keys}{kept}"


def _progress() -> Told:
    """A line of progress from time to time, on a terminal."""
    last = time.monotonic()

    def show_progress(pruned: Pruned) -> None:
        nonlocal last
        if sys.stderr.isatty() and time.monotonic() - last >= TOLD_EVERY:
            last = time.monotonic()
            warn(f"{pruned.found:,} found, {pruned.archived:,} archived, {pruned.deleted:,} deleted so far")

    return show_progress


@program.command("evidence")
def evidence(
    settings: Settings,
    run: Annotated[Text, arg("[RUN]", "The finished run; a part of its id is enough.")] = None,
    output: Annotated[Path | None, opt("--output", "-o", "FILE", "Where to; evidence-RUN.zip by default.")] = None,
    sign_with: Annotated[
        Path | None, opt("--sign-with", "FILE", "Sign with this key.", envvar="STEPKEEP_SIGNING_KEY_FILE")
    ] = None,
    without_payloads: Annotated[
        bool, opt("--without-payloads", "Leave inputs and outputs out; their digests remain.")
    ] = False,
    verify: Annotated[Path | None, opt("--verify", "PACK", "Verify this pack instead. Needs no database.")] = None,
    public_key: Annotated[
        Texts, opt("--public-key", "KEY", "With --verify: a key that you trust, in hex or as a file.")
    ] = None,
    new_key: Annotated[Path | None, opt("--new-key", "FILE", "Make a signing key in this new file instead.")] = None,
    sign_heads: Annotated[
        bool, opt("--sign-heads", "Sign the heads of all finished runs that the key has not signed.")
    ] = False,
) -> int:
    """Write one archive that an auditor can check without Stepkeep: definition, journal, decisions, payloads.

    The archive holds its own verifier: python verify.py PACK.zip. A signed pack also proves that nothing was rewritten
    as a whole, to an auditor who has the public key from another source.
    """
    if sum((run is not None, verify is not None, new_key is not None, sign_heads)) != 1:
        raise InvalidInput("Say what to do: name a RUN, or give --verify PACK, --new-key FILE or --sign-heads.")
    if sign_heads:
        return _sign_heads(settings, sign_with)
    if public_key and verify is None:
        raise InvalidInput("--public-key goes with --verify.")
    if verify is not None:
        return _verify(settings, verify, public_key or [])
    if new_key is not None:
        return _new_key(settings, new_key)
    return _write(settings, run or "", output, sign_with, payloads=not without_payloads)


def _write(settings: Settings, run: str, output: Path | None, sign_with: Path | None, *, payloads: bool) -> int:
    async def make(engine: AsyncEngine, found: str) -> tuple[str, bytes]:
        return found, await engine.evidence(found, signing_key=sign_with, payloads=payloads)

    if sign_with is not None:
        settings.require_database("`stepkeep evidence --sign-with`")
    found, pack = ask(settings, of_run(run, make))
    path = output or Path(f"evidence-{found}.zip")
    try:
        with path.open("xb") as file:
            file.write(pack)
    except FileExistsError:
        raise InvalidInput(f"{path} exists. Evidence is never replaced; name another file with --output.") from None
    except OSError as problem:
        raise InvalidInput(f"{path} cannot be written: {problem.strerror or problem}.") from None
    view = {"run": found, "file": str(path), "bytes": len(pack), "signed": sign_with is not None}
    said = (
        f"{path}: the evidence of run {found}, {len(pack):,} bytes, {'signed' if sign_with else 'not signed'}",
        f"Verify it: stepkeep evidence --verify {path}, or without Stepkeep: python verify.py {path}",
    )
    return print_value(settings, {"evidence": view}, said)


def _sign_heads(settings: Settings, sign_with: Path | None) -> int:
    if sign_with is None:
        raise InvalidInput("--sign-heads needs a key: --sign-with FILE, or STEPKEEP_SIGNING_KEY_FILE.")
    settings.require_database("`stepkeep evidence --sign-heads`")

    def words(done: HeadsSigned) -> list[str]:
        rest = "" if done.is_complete else " There are more: call it again."
        return [
            f"{done.signed:,} heads of finished runs are signed with key {done.key_id}.{rest}",
            "A pack of each of these runs has the signature. Call this on a timer, soon after runs end.",
        ]

    return print_answer(settings, lambda engine: engine.sign_heads(sign_with), words, under="signed_heads")


def _verify(settings: Settings, path: Path, keys: list[str]) -> int:
    from stepkeep.evidence import verifier

    try:
        report = verifier.verify(verifier.read_pack(str(path)), verifier.trusted_keys(keys))
    except verifier.UnreadablePack as problem:
        raise InvalidInput(f"{problem}.") from None
    return print_value(settings, verifier.as_json(report), verifier.page(report), failed=not report.ok)


def _new_key(settings: Settings, path: Path) -> int:
    from stepkeep.evidence.signing import new_key, write_key

    key = new_key()
    write_key(path, key)
    said = (
        f"{path}: a new signing key, {key.id}. Keep the file secret and a copy safe.",
        f"public key: {key.public.hex()}",
        "Give the public key to your auditors by another way than the packs.",
    )
    return print_value(
        settings, {"signing_key": {"file": str(path), "id": key.id, "public_key": key.public.hex()}}, said
    )
