"""Reads state files back and compares them with the database: `stepkeep state check`.

It changes nothing. A file that is older than the database is stale, which is no fault; one that says something else
about the same place in a journal has drifted. The command line calls it.
"""

from __future__ import annotations

import asyncio
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from stepkeep.errors import InvalidInput, NotFound, Unreadable
from stepkeep.operations import validate
from stepkeep.operations.log_together import export_together
from stepkeep.operations.state_export import DIALECT, HEAD, journal_of, read_shown
from stepkeep.operations.state_files import (
    CHECKPOINTS,
    CURRENT,
    TRANSITIONS,
    Shown,
    documents_of,
    resumption_of,
)
from stepkeep.operations.transact import Transactor

MOST_FINDINGS = 200
LARGEST = 64 * 1024 * 1024
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class Code(StrEnum):
    """What is wrong with a file."""

    DRIFT = "drift"
    STALE = "stale"
    DAMAGED = "damaged"
    MISSING = "missing"
    LEFTOVER = "leftover"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    code: Code
    file: str
    message: str


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What was found in a folder, and what each checkpoint would resume."""

    findings: tuple[Finding, ...]
    resumptions: tuple[dict[str, Any], ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing but stale files was found."""
        return all(finding.code in (Code.STALE, Code.LEFTOVER) for finding in self.findings)


async def check_state(transactor: Transactor, folder: Path, *, tenant: str) -> Checked:
    """Compare every state file of a folder with the database."""
    return await _Check(transactor, folder, tenant).whole()


class _Check:
    def __init__(self, transactor: Transactor, folder: Path, tenant: str) -> None:
        self._transactor, self._folder, self._tenant = transactor, folder, tenant
        self._found: list[Finding] = []
        self._resumptions: list[dict[str, Any]] = []

    async def whole(self) -> Checked:
        if not await asyncio.to_thread(self._folder.is_dir):
            raise InvalidInput(f"there is no folder {self._folder}. `stepkeep state export {self._folder}` makes it.")
        for left in await asyncio.to_thread(lambda: sorted(self._folder.rglob(".unfinished-*"))):
            self._say(Code.LEFTOVER, left.name, "was left by an interrupted export and may be removed")
        current = await self._read(CURRENT)
        workstreams = self._workstreams(current)
        run_ids = []
        for name, told in workstreams.items():
            shown = await self._shown(name, told)
            if shown is not None:
                run_ids.append(shown.run_id)
                await self._compare(name, told, shown, current or {})
        if run_ids:
            await self._compare_lines(run_ids)
        return Checked(findings=tuple(self._found[:MOST_FINDINGS]), resumptions=tuple(self._resumptions))

    def _workstreams(self, current: dict[str, Any] | None) -> dict[str, dict[str, Any]]:
        if current is None:
            return {}
        for key, kind in (("workstreams", dict), ("tasks", dict), ("timestamp", str)):
            if not isinstance(current.get(key), kind):
                self._say(Code.DAMAGED, CURRENT, f"`{key}` is missing or of another type")
                return {}
        return {name: told for name, told in current["workstreams"].items() if self._is_placed(CURRENT, told)}

    def _is_placed(self, file: str, told: Any) -> bool:
        placed = isinstance(told, dict) and isinstance(told.get("run_id"), str) and isinstance(told.get("seq"), int)
        if not placed:
            self._say(Code.DAMAGED, file, "names no run and no place in its journal (`run_id`, `seq`)")
        return placed

    async def _shown(self, name: str, told: dict[str, Any]) -> Shown | None:
        try:
            run_id = validate.run_id(told["run_id"])
            return await read_shown(self._transactor, run_id, tenant=self._tenant)
        except (NotFound, InvalidInput):
            self._say(Code.DRIFT, CURRENT, f"workstream {name} is run {told['run_id']!r}, which the database has not")
        except Unreadable as problem:
            self._say(Code.DRIFT, CURRENT, f"workstream {name}: {problem}")
        return None

    async def _compare(self, name: str, told: dict[str, Any], shown: Shown, current: dict[str, Any]) -> None:
        if self._is_same_place(CURRENT, name, told, shown):
            self._differences(CURRENT, f"workstream {name}", told, {**shown.body["workstream"], **shown.read_at})
            for task in shown.body["tasks"]:
                key = f"{name}/{task['task_id']}"
                self._differences(CURRENT, f"task {key}", current["tasks"].get(key), task)
        for file, expected in documents_of(shown).items():
            found = await self._read(file)
            if found is None or not self._is_placed(file, found):
                continue
            if self._is_same_place(file, name, found, shown):
                self._differences(file, f"workstream {name}", found, expected)
            if file.startswith(CHECKPOINTS):
                self._resume(file, found)

    def _resume(self, file: str, checkpoint: dict[str, Any]) -> None:
        try:
            self._resumptions.append(resumption_of(checkpoint))
        except (KeyError, TypeError) as problem:
            self._say(Code.DAMAGED, file, f"is no checkpoint: {problem} is missing or of another type")

    def _is_same_place(self, file: str, name: str, told: dict[str, Any], shown: Shown) -> bool:
        """Whether a file tells of the journal as it is now; what is older is stale, what is newer has drifted."""
        if told["run_id"] != shown.run_id:
            self._say(Code.DRIFT, file, f"workstream {name} is run {told['run_id']} here and {shown.run_id} elsewhere")
        elif told["seq"] < shown.seq:
            behind = shown.seq - told["seq"]
            self._say(Code.STALE, file, f"workstream {name} is {behind} entries behind; export again")
        elif told["seq"] > shown.seq or told.get("head") != shown.head:
            self._say(Code.DRIFT, file, f"workstream {name} tells of journal entries that the database has not")
        else:
            return True
        return False

    def _differences(self, file: str, what: str, told: Any, expected: dict[str, Any]) -> None:
        plain = _decode(_encode(expected))
        if not isinstance(told, dict):
            self._say(Code.DRIFT, file, f"{what} is missing")
            return
        for key in sorted(plain.keys() | told.keys()):
            if told.get(key) != plain.get(key):
                self._say(Code.DRIFT, file, f"{what}: `{key}` differs from the database")

    async def _compare_lines(self, run_ids: list[str]) -> None:
        """Each journal in the file is a beginning of the one in the database, line by line."""
        lines = await asyncio.to_thread(self._lines)
        if lines is None:
            return
        expected: dict[tuple[str, int], str] = {}
        newest: dict[str, int] = {}
        async for line in export_together(self._transactor, run_ids, tenant=self._tenant, dialect=DIALECT):
            key = (journal_of(line), line["metadata"]["line"])
            if line["event_type"] != HEAD:
                newest[key[0]] = key[1]
                expected[key] = line["metadata"].get("hash", line["metadata"].get("digest", ""))
        reached: dict[str, int] = {}
        for number, line in lines:
            journal, place = journal_of(line), line["metadata"]["line"]
            if journal not in newest or line["event_type"] == HEAD:
                continue
            if place != reached.get(journal, self._before_first(expected, journal)) + 1:
                self._say(Code.DRIFT, TRANSITIONS, f"line {number}: the journal of {journal} is not continued here")
            said = line["metadata"].get("hash", line["metadata"].get("digest", ""))
            if expected.get((journal, place)) != said:
                self._say(Code.DRIFT, TRANSITIONS, f"line {number} differs from the journal of {journal}")
            reached[journal] = place
        for journal, last in newest.items():
            if reached.get(journal, -1) < last:
                self._say(Code.STALE, TRANSITIONS, f"lacks lines of {journal}; export again")

    @staticmethod
    def _before_first(expected: dict[tuple[str, int], str], journal: str) -> int:
        """The number before the first line: journals of runs begin with 0, those of workers with 1."""
        return -1 if (journal, 0) in expected else 0

    def _lines(self) -> list[tuple[int, dict[str, Any]]] | None:
        content = self._content(TRANSITIONS)
        if content is None:
            return None
        found = []
        for number, text in enumerate(content.splitlines(), 1):
            try:
                line = _decode(text)
                journal_of(line)
                if not isinstance(line["metadata"]["line"], int) or not isinstance(line["event_type"], str):
                    raise TypeError(text)
                found.append((number, line))
            except (msgspec.DecodeError, KeyError, TypeError, AttributeError, UnicodeDecodeError):
                self._say(Code.DAMAGED, TRANSITIONS, f"line {number} is no transition")
        return found

    async def _read(self, file: str) -> dict[str, Any] | None:
        content = await asyncio.to_thread(self._content, file)
        if content is None:
            return None
        try:
            found = _decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            self._say(Code.DAMAGED, file, f"is not JSON: {problem}")
            return None
        if not isinstance(found, dict):
            self._say(Code.DAMAGED, file, "is no object")
            return None
        return found

    def _content(self, file: str) -> bytes | None:
        try:
            with (self._folder / file).open("rb") as opened:
                content = opened.read(LARGEST + 1)
        except FileNotFoundError:
            self._say(Code.MISSING, file, "does not exist; export again")
            return None
        except OSError as problem:
            self._say(Code.DAMAGED, file, f"cannot be read: {problem.strerror}")
            return None
        if len(content) > LARGEST:
            self._say(Code.DAMAGED, file, f"is larger than {LARGEST} bytes")
            return None
        return content

    def _say(self, code: Code, file: str, message: str) -> None:
        self._found.append(Finding(code=code, file=file, message=message))
