"""Logs: exported logs of real runs with something done to them, in canonical names and in five dialects.

Judges that `log verify` ends with a verdict, and that it finds every change of meaning, but for the kinds that
docs/journal.md says cannot be found.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from stepkeep_lab.fuzz.chance import hostile_text, places, scalar, shorter
from stepkeep_lab.fuzz.material import CANONICAL, exported_logs
from stepkeep_lab.fuzz.program import Said, run_command
from stepkeep_lab.fuzz.target import Limits, Target, Verdict, broken

WORDS = (CANONICAL, CANONICAL, CANONICAL, "ioa", "run", "linear", "action", "workstream")
STORIES = 7
OPERATIONS = (
    "drop",
    "double",
    "swap",
    "move",
    "edit",
    "edit",
    "edit",
    "retype",
    "remove field",
    "rename field",
    "add field",
    "huge number",
    "double key",
    "flip byte",
    "cut",
    "append",
    "blank line",
    "spaces",
    "sort keys",
    "drop run",
    "rename step",
    "rename correlation",
)


class Edit(msgspec.Struct, frozen=True):
    """One change. `at` and `to` choose places as shares of what there is; `value` is what is put there."""

    what: str
    at: float
    to: float
    value: Any


class Tampering(msgspec.Struct, frozen=True):
    """Which logs, in whose words, and what is done to them."""

    words: str
    stories: tuple[int, ...]
    edits: tuple[Edit, ...]
    packed: bool
    damage: float | None
    """Where the packed file is damaged, as a share of its length."""


Verify = Callable[[list[str]], Said]


class Logs(Target[Tampering]):
    name = "logs"
    what = "Exported logs with lines and fields dropped, swapped, edited, retyped, cut, appended; packed files damaged."
    holds = "`log verify` ends with a verdict, and finds every change of meaning but for the documented kinds."
    limits = Limits(cpu_seconds=5.0, wall_seconds=60.0, memory_mb=500, batch=400)

    def __init__(self, verify: Verify = run_command) -> None:
        self._verify = verify
        self._logs: dict[str, list[list[bytes]]] = {}
        self._file = Path("tampered.log")

    def open(self, folder: Path) -> None:
        self._logs = exported_logs()
        self._file = folder / "tampered.log"

    def generate(self, random: Random) -> Tampering:
        stories = tuple(random.sample(range(STORIES), random.choice((1, 1, 2, 3))))
        edits = tuple(_edit(random) for _ in range(random.choice((1, 1, 1, 2, 3))))
        packed = random.random() < 0.15
        damage = random.random() if packed and random.random() < 0.6 else None
        return Tampering(random.choice(WORDS), stories, edits, packed, damage)

    def check(self, case: Tampering) -> Verdict:
        before = [line for story in case.stories for line in self._logs[case.words][story]]
        after = list(before)
        for edit in case.edits:
            after = tampered(after, edit)
        written = b"".join(line + b"\n" for line in after)
        self._file.write_bytes(_packed(written, case.damage) if case.packed else written)
        asked = ["log", "verify", str(self._file), "--json"]
        said = self._verify(asked if case.words == CANONICAL else [*asked, "--as", case.words])
        if said.status not in (0, 1) or not said.is_in_words:
            return broken("ends with a verdict", f"status {said.status}: {said.err[-500:].decode(errors='replace')}")
        if said.status == 1:
            verdict = msgspec.json.decode(said.out)
            if verdict.get("error") or not (verdict["findings"] or verdict["omitted"]):
                return broken("ends with a verdict", f"status 1 without a finding: {said.out[:300]!r}")
            return Verdict(outcome="found")
        if case.damage is not None and not _is_whole(_packed(written, case.damage), written):
            return broken("finds a damaged file", "a packed log that cannot be unpacked is judged clean")
        return _judged_clean(before, after)

    def show(self, case: Tampering) -> str:
        packed = "" if not case.packed else ", packed" if case.damage is None else f", damaged at {case.damage:.4f}"
        edits = "; ".join(f"{one.what} at {one.at:.4f} to {one.to:.4f} ({one.value!r})" for one in case.edits)
        return f"{case.words} log of stories {case.stories}{packed}: {edits}"

    def smaller(self, case: Tampering) -> Iterator[Tampering]:
        for edits in shorter(case.edits):
            yield msgspec.structs.replace(case, edits=tuple(edits))
        if len(case.stories) > 1:
            for stories in shorter(case.stories):
                yield msgspec.structs.replace(case, stories=tuple(stories))


def _edit(random: Random) -> Edit:
    what = random.choice(OPERATIONS)
    value: Any = hostile_text(random) if random.random() < 0.5 else scalar(random)
    if what == "edit":
        value = random.choice((value, "+1", "-1", "other"))
    return Edit(what, random.random(), random.random(), value)


# -- what is done to the lines -----------------------------------------------------------------------------------------
def tampered(lines: list[bytes], edit: Edit) -> list[bytes]:
    """The lines after one change."""
    if not lines:
        return [b"{}"] if edit.what == "append" else lines
    at, to = int(edit.at * len(lines)), int(edit.to * len(lines))
    match edit.what:
        case "drop":
            return [*lines[:at], *lines[at + 1 :]]
        case "double":
            return [*lines[:to], lines[at], *lines[to:]]
        case "swap":
            lines = list(lines)
            lines[at], lines[to] = lines[to], lines[at]
            return lines
        case "move":
            rest = [*lines[:at], *lines[at + 1 :]]
            return [*rest[:to], lines[at], *rest[to:]]
        case "cut":
            return _cut(lines, edit.at)
        case "append":
            return [*lines, lines[at]] if edit.to < 0.5 else [*lines, _text(edit.value)]
        case "blank line":
            return [*lines[:at], b"", *lines[at:]]
        case "drop run":
            owner = _owner(lines[at])
            return [line for line in lines if _owner(line) != owner]
        case "rename step" | "rename correlation":
            return _renamed(lines, lines[at], edit)
    return [*lines[:at], _changed(lines[at], edit), *lines[at + 1 :]]


def _cut(lines: Sequence[bytes], share: float) -> list[bytes]:
    whole = b"\n".join(lines)
    return whole[: int(share * len(whole))].split(b"\n")


def _changed(line: bytes, edit: Edit) -> bytes:
    if edit.what == "flip byte":
        place = int(edit.to * len(line))
        return (
            line[:place] + bytes([line[place] ^ (1 << int(edit.at * 1_000) % 8)]) + line[place + 1 :] if line else line
        )
    try:
        tree = json.loads(line)
    except ValueError:
        return line
    if not isinstance(tree, dict):
        return line
    paths = list(places(tree))
    path = paths[int(edit.to * len(paths))] if paths else ()
    match edit.what:
        case "spaces":
            return json.dumps(tree, indent=None, separators=(" , ", " : ")).encode()
        case "sort keys":
            return json.dumps(tree, sort_keys=True).encode()
        case "double key":
            name = json.dumps(str(path[0]) if path else "a").encode()
            return line[:-1] + b"," + name + b":" + _text(edit.value, quoted=True) + b"}"
        case "add field":
            tree["metadata" if edit.at < 0.5 else str(edit.value)] = edit.value
            return json.dumps(tree).encode()
    if not path:
        return line
    holder: Any = tree
    for part in path[:-1]:
        holder = holder[part]
    key, old = path[-1], holder[path[-1]]
    match edit.what:
        case "remove field":
            del holder[key]
        case "rename field" if isinstance(holder, dict):
            holder[str(edit.value)] = holder.pop(key)
        case "huge number":
            holder[key] = 10**400 if edit.at < 0.5 else 2**63
        case "retype":
            holder[key] = [old] if edit.at < 0.3 else {"a": old} if edit.at < 0.6 else str(old)
        case _:
            holder[key] = _other(old, edit.value)
    return json.dumps(tree).encode()


def _other(old: Any, value: Any) -> Any:
    """Another value in its place: a near one where that can be said."""
    if value in ("+1", "-1") and isinstance(old, (int, float)) and not isinstance(old, bool):
        return old + (1 if value == "+1" else -1)
    if value == "other" and isinstance(old, str) and old:
        return old[:-1] + ("0" if old[-1] != "0" else "1")
    return value


def _renamed(lines: Sequence[bytes], like: bytes, edit: Edit) -> list[bytes]:
    """A step, or a correlation id, with another name throughout its run."""
    name = _metadata(like).get("step" if edit.what == "rename step" else "correlation_id")
    if not isinstance(name, str) or not name:
        return list(lines)
    old, owner = json.dumps(name)[1:-1].encode(), _owner(like)
    return [line.replace(old, old + b"2") if _owner(line) == owner else line for line in lines]


def _text(value: Any, *, quoted: bool = False) -> bytes:
    if isinstance(value, str) and not quoted:
        return value.encode(errors="surrogatepass").replace(b"\n", b" ")
    return json.dumps(value).encode()


def _packed(written: bytes, damage: float | None) -> bytes:
    packed = bytearray(gzip.compress(written, mtime=0))
    if damage is not None:
        place = int(damage * len(packed))
        if place % 3 == 0:
            return bytes(packed[:place])
        packed[place] ^= 0x55
    return bytes(packed)


def _is_whole(packed: bytes, written: bytes) -> bool:
    try:
        return gzip.decompress(packed) == written
    except (OSError, EOFError, ValueError):
        return False
    except Exception as error:  # noqa: BLE001 - zlib.error has no better base
        return not str(error)


# -- what the lines mean -----------------------------------------------------------------------------------------------
def _judged_clean(before: list[bytes], after: list[bytes]) -> Verdict:
    """The verdict on lines that the judge has nothing to say about."""
    was, now = [_meaning(line) for line in before], [_meaning(line) for line in after]
    if was == now:
        return Verdict(outcome="no change of meaning")
    old, new = _by_owner(before, _meaning), _by_owner(after, _meaning)
    if new and all(old.get(owner) == lines for owner, lines in new.items()):
        return Verdict(outcome="a whole run left out, or runs in another order (documented)")
    old, new = _by_owner(before, _nameless), _by_owner(after, _nameless)
    if new and all(old.get(owner) == lines for owner, lines in new.items()):
        return Verdict(outcome="names or correlation ids changed (documented)")
    return broken("finds a change of meaning", _difference(before, after))


def _meaning(line: bytes) -> str:
    try:
        return json.dumps(json.loads(line), sort_keys=True)
    except ValueError:
        return repr(line)


def _nameless(line: bytes) -> str:
    """The meaning without what is not under the hash of a canonical log."""
    try:
        tree = json.loads(line)
    except ValueError:
        return repr(line)
    if isinstance(tree, dict) and isinstance(tree.get("metadata"), dict) and "dialect" not in tree["metadata"]:
        for name in ("step", "of", "correlation_id"):
            tree["metadata"].pop(name, None)
        tree.pop("entity_id", None)
    return json.dumps(tree, sort_keys=True)


def _by_owner(lines: Sequence[bytes], meaning: Callable[[bytes], str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in lines:
        found.setdefault(_owner(line), []).append(meaning(line))
    return found


def _owner(line: bytes) -> str:
    found = _metadata(line)
    return json.dumps([found.get("tenant"), found.get("run_id")])


def _metadata(line: bytes) -> dict[str, Any]:
    try:
        tree = json.loads(line)
    except ValueError:
        return {}
    found = tree.get("metadata") if isinstance(tree, dict) else None
    return found if isinstance(found, dict) else {}


def _difference(before: Sequence[bytes], after: Sequence[bytes]) -> str:
    gone = Counter(map(_meaning, before)) - Counter(map(_meaning, after))
    come = Counter(map(_meaning, after)) - Counter(map(_meaning, before))
    return f"gone: {list(gone)[:1]}; new: {list(come)[:1]}"
