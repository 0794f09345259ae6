"""Finds runs by what no index has: labels, times, error text, any text. It reads pages of the indexed lists.

It looks at a bounded number of runs, newest first, and says whether that were all. The engine calls it; it only reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

import msgspec

from stepkeep.errors import Unreadable
from stepkeep.operations.retention import first_id_at
from stepkeep.operations.transact import Transactor
from stepkeep.operations.views import list_runs, summarise_all, unreadable_view
from stepkeep.store.listing import is_every_run
from stepkeep.store.records import RunFilter, RunRecord

PAGE = 500
MOST_READ = 20_000
"""This many runs are looked at for one page of results."""
MOST_COUNTED = 1_000
"""Totals are counted up to here where an index answers the search."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What to look for beside an index. Texts are found anywhere, in any case. Times are microseconds of the start."""

    labels: Mapping[str, str] = {}
    since: int | None = None
    until: int | None = None
    error: str | None = None
    text: str | None = None

    @property
    def is_empty(self) -> bool:
        return self == Terms()

    @property
    def needle(self) -> str | None:
        """Lower-case ASCII that every match has in one of its stored fields; None if there is none to rely on."""
        # The value of a label is stored as JSON text: with its quotes it is found in fewer other places.
        quoted = (f'"{value}"' for value in self.labels.values() if _is_plain(value))
        return next((one.lower() for one in (*filter(_is_plain, (self.text, self.error)), *quoted)), None)

    def match(self, record: RunRecord) -> bool:
        run, details = record.run, record.details
        if self.labels:
            own = msgspec.json.decode(details.labels) if details.labels else {}
            if any(own.get(name) != value for name, value in self.labels.items()):
                return False
        if self.error is not None and self.error.casefold() not in (run.error or "").casefold():
            return False
        if self.text is None:
            return True
        parts = (run.id, details.workflow, details.business_key, details.correlation_id, details.created_by, run.error)
        payloads = (details.input.decode(), (details.labels or b"").decode())
        wanted = self.text.casefold()
        return any(wanted in part.casefold() for part in (*parts, *payloads) if part)


def _is_plain(text: str | None) -> TypeGuard[str]:
    """Whether a text is stored as it is: JSON and the database escape no character of it."""
    return text is not None and text != "" and text.isascii() and text.isprintable() and not set(text) & set('"\\')


async def search_runs(transactor: Transactor, which: RunFilter, terms: Terms) -> dict[str, Any]:
    """`{"runs": [...], "total": n, "is_complete": bool}`, newest first. An incomplete total is a lower bound."""
    if terms.is_empty:
        listed = await list_runs(transactor, which)
        every = msgspec.structs.replace(which, before=None, limit=MOST_COUNTED)
        total = await transactor.store.count_found(every)
        return listed | {"total": total, "is_complete": total < MOST_COUNTED}
    await list_runs(transactor, msgspec.structs.replace(which, limit=which.limit and 1))  # refuses what is malformed
    return await _walk(transactor, which, terms)


async def _walk(transactor: Transactor, which: RunFilter, terms: Terms) -> dict[str, Any]:
    oldest = "" if terms.since is None else first_id_at(terms.since)
    before = which.before
    if terms.until is not None:
        newest = first_id_at(terms.until + 1_000)
        before = newest if before is None else min(before, newest)
    needle = terms.needle if is_every_run(which) else None
    found: list[RunRecord] = []
    problems: list[Unreadable] = []
    total = read = 0
    is_complete = False
    while read < MOST_READ:
        unreadable: list[Unreadable] = []
        page = await transactor.store.list_runs(msgspec.structs.replace(which, before=before, limit=PAGE), unreadable)
        problems += (one for one in unreadable if str(one.run_id) >= oldest)
        within = [record for record in page if record.run.id >= oldest]
        read += len(page) + len(unreadable)
        matching = [record for record in within if terms.match(record)]
        total += len(matching)
        found += matching[: which.limit - len(found)]
        if len(page) + len(unreadable) < PAGE or len(within) < len(page):
            is_complete = True
            break
        before = min([*(record.run.id for record in page[-1:]), *(str(one.run_id) for one in unreadable)])
        if needle is not None:
            # The database looks through the others, and gives only those that may match.
            others = msgspec.structs.replace(which, before=before, limit=MOST_READ - read)
            looked_at = await transactor.store.count_found(others)
            worded = msgspec.structs.replace(which, before=before, words=needle, limit=MOST_COUNTED)
            likely = await transactor.store.list_runs(worded, problems)
            matching = [record for record in likely if record.run.id >= oldest and terms.match(record)]
            total += len(matching)
            found += matching[: which.limit - len(found)]
            is_complete = looked_at < MOST_READ - read and len(likely) < MOST_COUNTED
            break
    listed = await summarise_all(transactor, which.tenant, found)
    said: dict[str, Any] = {"runs": listed, "total": total, "is_complete": is_complete}
    return said | ({"unreadable": [unreadable_view(problem) for problem in problems]} if problems else {})
