"""Keeps recorded behaviour in a folder, and compares today's with it.

`documents/` has texts (compressed where they are long), `lives.bin` the lives of the simulator, `statements.bin` the
logs of the stores. Lives that do not reach every row of the state tables and every event are not recorded.
"""

from __future__ import annotations

import difflib
import hashlib
import lzma
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from stepkeep.kernel.errors import InvalidInput, NotFound
from stepkeep_lab.golden import lives, statements
from stepkeep_lab.golden.documents import documents
from stepkeep_lab.golden.lives import LONG, SHORT, Life
from stepkeep_lab.golden.statements import STORES, Log, Sent

PARTS = ("documents", "lives", "statements")
COMPRESSED = 300_000
"""Documents of more characters are kept compressed."""

BLOCK = 8
"""Statements that share one byte of the record."""

CONTEXT = 3
TITLE = re.compile(r"## |\$ |-- |[A-Z]+ /|\w+[(:]")
"""Lines of documents that say what follows."""

KEY = re.compile(r'\s+"(.+)": ')

MOST = 20
"""After this many differences of one part the check says no more of it."""

Told = Callable[[str], None]


class Lives(msgspec.Struct, kw_only=True):
    """The lives of each profile, from seed 0 on; those beyond the short form have no trace."""

    python: str
    profiles: dict[str, list[Life]] = {}


class Logs(msgspec.Struct, kw_only=True):
    """The logs of each store, from seed 0 on; statements are numbers in `names`."""

    python: str
    names: list[str] = []
    stores: dict[str, list[Log]] = {}


PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def record(folder: Path, parts: Sequence[str], *, long: bool, jobs: int, told: Told) -> None:
    """Write the record anew."""
    folder.mkdir(parents=True, exist_ok=True)
    if "documents" in parts:
        _record_documents(folder / "documents", told)
    if "lives" in parts:
        _record_lives(folder / "lives.bin", LONG if long else SHORT, jobs, told)
    if "statements" in parts:
        _record_statements(folder / "statements.bin", jobs, told)


def check(
    folder: Path, parts: Sequence[str], *, long: bool, jobs: int, most: int | None = None, told: Told
) -> list[str]:
    """What differs from the record, each with its place. `most` bounds lives of a profile and seeds of a store."""
    found: list[str] = []
    if "documents" in parts:
        found += _bounded(_check_documents(folder / "documents", told))
    if "lives" in parts:
        found += _bounded(_check_lives(folder / "lives.bin", LONG if long else SHORT, most, jobs, told))
    if "statements" in parts:
        found += _bounded(_check_statements(folder / "statements.bin", most, jobs, told))
    return found


def _bounded(found: Iterator[str]) -> Iterator[str]:
    for number, one in enumerate(found):
        if number == MOST:
            yield "and more: the rest was not looked at"
            return
        yield one


# -- documents ---------------------------------------------------------------------------------------------------------
def _record_documents(folder: Path, told: Told) -> None:
    written = dict(documents())
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for name, text in written.items():
        told(f"{name}: {len(text):,} characters")
        if len(text) > COMPRESSED:
            (folder / f"{name}.xz").write_bytes(lzma.compress(text.encode(), preset=9))
        else:
            (folder / name).write_text(text, encoding="utf-8")


def _check_documents(folder: Path, told: Told) -> Iterator[str]:
    recorded = {path.name.removesuffix(".xz"): path for path in folder.iterdir()}
    for name, text in documents():
        told(name)
        path = recorded.pop(name, None)
        if path is None:
            yield f"document {name} is not recorded"
            continue
        before = lzma.decompress(path.read_bytes()).decode() if path.suffix == ".xz" else path.read_text("utf-8")
        if before != text:
            yield f"document {name}: {_first_difference(before, text)}"
    yield from (f"document {name} is recorded, and there is none any more" for name in recorded)


def _first_difference(before: str, now: str) -> str:
    """The first lines that differ, with the line number, the title above them and, in JSON, the keys around them."""
    was, lines = before.splitlines(), now.splitlines()
    at = next(
        (at for at, (one, two) in enumerate(zip(was, lines, strict=False)) if one != two), min(len(was), len(lines))
    )
    title = next((line for line in reversed(lines[:at]) if TITLE.match(line)), "the beginning")
    near = slice(max(0, at - CONTEXT), at + CONTEXT)
    shown = list(difflib.unified_diff(was[near], lines[near], lineterm="", n=CONTEXT))[3:]
    place = " ".join([repr(title), *_keys(lines if at < len(lines) else was, at)])
    return f"line {at + 1}, under {place}:\n" + "\n".join(f"    {line[:200]}" for line in shown)


def _keys(lines: Sequence[str], at: int) -> list[str]:
    """The keys of indented JSON in which a line stands, the outermost first."""
    keys: list[str] = []
    depth = len(lines[at]) - len(lines[at].lstrip()) if at < len(lines) else 0
    for line in reversed(lines[:at]):
        if not depth:
            break
        if (indent := len(line) - len(line.lstrip())) < depth:
            depth = indent
            keys += [found[1] for found in [KEY.match(line)] if found]
    return keys[::-1]


# -- lives -------------------------------------------------------------------------------------------------------------
def _record_lives(path: Path, counts: dict[str, int], jobs: int, told: Told) -> None:
    kept, rows, events = Lives(python=PYTHON), set[tuple[str, str | None, str]](), set[str]()
    for profile, count in counts.items():
        profiles = kept.profiles.setdefault(profile, [])
        for played in lives.play(profile, range(count), jobs):
            for violation in played.violations:
                told(f"recorded although it breaks a promise: {violation}")
            profiles += played.lives
            rows |= played.rows
            events |= played.events
            told(f"{len(profiles):,} of {count:,} lives, {profile}")
        profiles[SHORT[profile] :] = [Life(life.digest) for life in profiles[SHORT[profile] :]]
    if missing := lives.unreached(rows, events):
        raise InvalidInput(f"the lives do not reach everything, so they are not recorded: {', '.join(missing)}")
    path.write_bytes(lzma.compress(msgspec.msgpack.encode(kept)))


def _check_lives(path: Path, counts: dict[str, int], most: int | None, jobs: int, told: Told) -> Iterator[str]:
    kept = msgspec.msgpack.decode(lzma.decompress(_there(path).read_bytes()), type=Lives)
    yield from _other_python(kept.python)
    for profile, count in counts.items():
        recorded = kept.profiles.get(profile, [])
        if len(recorded) < count:
            yield f"{len(recorded):,} lives of the profile {profile} are recorded, and {count:,} are asked for"
        seed, wanted = 0, min(count, len(recorded), most or count)
        for played in lives.play(profile, range(wanted), jobs):
            for life in played.lives:
                if life.digest != recorded[seed].digest:
                    yield f"life {seed} of the profile {profile} differs in {_place(profile, seed, recorded[seed])}"
                seed += 1
            told(f"{seed:,} of {wanted:,} lives, {profile}")


def _place(profile: str, seed: int, before: Life) -> str:
    if not before.tables:
        return "a place that only the short form keeps"
    observed, _ = lives.observe(profile, seed)
    return lives.differences(before, observed)


# -- statements --------------------------------------------------------------------------------------------------------
def _record_statements(path: Path, jobs: int, told: Told) -> None:
    kept, numbers = Logs(python=PYTHON), dict[str, int]()
    for store in STORES:
        logs = kept.stores.setdefault(store, [])
        for batch in statements.logs(store, range(statements.SEEDS), jobs):
            logs += [_log(sent, numbers) for sent in batch]
            told(f"{len(logs):,} of {statements.SEEDS:,} logs, {store}")
    kept.names = list(numbers)
    path.write_bytes(lzma.compress(msgspec.msgpack.encode(kept)))


def _log(sent: Sequence[Sent], numbers: dict[str, int]) -> Log:
    return Log([numbers.setdefault(one.name, len(numbers)) for one in sent], bytes(_blocks(sent)))


def _blocks(sent: Sequence[Sent]) -> Iterator[int]:
    for at in range(0, len(sent), BLOCK):
        yield hashlib.sha256("\n".join(one.parameters for one in sent[at : at + BLOCK]).encode()).digest()[0]


def _check_statements(path: Path, most: int | None, jobs: int, told: Told) -> Iterator[str]:
    kept = msgspec.msgpack.decode(lzma.decompress(_there(path).read_bytes()), type=Logs)
    yield from _other_python(kept.python)
    for store, recorded in kept.stores.items():
        seed, wanted = 0, min(len(recorded), most or len(recorded))
        for batch in statements.logs(store, range(wanted), jobs):
            for sent in batch:
                if difference := _difference(kept.names, recorded[seed], sent):
                    yield f"the statements of seed {seed} on {store} differ: {difference}"
                seed += 1
            told(f"{seed:,} of {wanted:,} logs, {store}")


def _difference(names: Sequence[str], before: Log, now: Sequence[Sent]) -> str | None:
    """Where a log first differs from the recorded one; None where it does not."""
    was = [names[number] for number in before.names]
    at = next((at for at, (one, two) in enumerate(zip(was, now, strict=False)) if one != two.name), None)
    blocks = enumerate(zip(before.parameters, _blocks(now), strict=False))
    block = next((at for at, (one, two) in blocks if one != two), None)
    if block is not None and (at is None or block < at // BLOCK):
        few = now[block * BLOCK : block * BLOCK + BLOCK]
        shown = "\n".join(f"    {one.name} {one.parameters[: lives.SHOWN]}" for one in few)
        return f"parameters of statements {block * BLOCK + 1} to {block * BLOCK + len(few)}; now\n{shown}"
    if at is not None:
        return f"statement {at + 1} is {now[at].name} {now[at].parameters[: lives.SHOWN]}; recorded was {was[at]}"
    if len(now) > len(was):
        return f"statement {len(was) + 1} is new: {now[len(was)].name} {now[len(was)].parameters[: lives.SHOWN]}"
    return f"it ends with statement {len(now)}; recorded was then {was[len(now)]}" if len(now) < len(was) else None


def _there(path: Path) -> Path:
    if not path.exists():
        raise NotFound(f"there is no {path}: record it first, with `stepkeep lab golden record`.")
    return path


def _other_python(recorded: str) -> Iterator[str]:
    """Digests of code differ between versions of Python, and journals have them."""
    if recorded != PYTHON:
        yield f"it was recorded with Python {recorded}, and this is {PYTHON}: use the same"
