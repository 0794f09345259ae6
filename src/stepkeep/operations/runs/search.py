"""Finds runs by what no index has: labels, error text, any text. The database looks through a bounded part of the runs.

The answer says what was looked at, and where the next part begins: a caller that goes on sees every run. The engine
calls it; it only reads.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from stepkeep.kernel.errors import Unreadable
from stepkeep.operations.instants import instant
from stepkeep.operations.logs.retention import created_at, first_id_at
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.runs import counting
from stepkeep.operations.runs.run_answers import LookedAt, RunList
from stepkeep.operations.runs.views import accept_filter, summarise_all, unreadable_view
from stepkeep.store.listing import is_read_in_order
from stepkeep.store.records import FIRST_ID, RunFilter, Words

MOST_IN_ORDER = 50_000
"""Runs that one part of a search looks at, where it reads them in the order of their key."""
MOST_LOOKED_UP = 20_000
"""The same, where an index finds the runs first and each is looked up."""
MOST_COUNTED = 1_000
"""Totals are counted up to here where an index answers all."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What to look for beside an index. Texts are found anywhere, in any case of ASCII letters. Times are microseconds
    of the start."""

    labels: Mapping[str, str] = {}
    since: int | None = None
    until: int | None = None
    error: str | None = None
    text: str | None = None
    roots: bool = False

    @property
    def is_empty(self) -> bool:
        return self == Terms()

    @property
    def words(self) -> Words:
        """What the database looks for in each run."""
        encode = msgspec.json.encode
        return Words(
            error=_lower(self.error),
            text=_lower(self.text),
            labels=tuple(encode(name) + b":" + encode(value) for name, value in sorted(self.labels.items())),
            roots=self.roots,
        )

    def bound(self, which: RunFilter) -> RunFilter:
        """The filter with what an index can answer: ids begin with the time of the start."""
        if self.since is not None:
            which = replace(which, oldest=first_id_at(self.since))
        if self.until is not None:
            newest = first_id_at(self.until + 1_000)
            which = replace(which, before=newest if which.before is None else min(which.before, newest))
        return replace(which, erred=self.error is not None)


def _lower(text: str | None) -> str | None:
    return None if text is None else text.encode().lower().decode()


async def search_runs(transactor: Transactor, which: RunFilter, terms: Terms) -> RunList:
    """A page of runs, newest first.

    An incomplete total is a lower bound. `next` is the `before` of what follows. A search that ended before the last
    run has `looked_at`.
    """
    accept_filter(which)
    which, words, store = terms.bound(which), terms.words, transactor.store
    unreadable: list[Unreadable] = []
    # Whether a run is a child is one look into an index: a part is as short as that of a list.
    is_list = words in (Words(), Words(roots=True))
    if is_list:
        most = max(MOST_COUNTED, which.limit)
    else:
        most = MOST_IN_ORDER if is_read_in_order(which, words) else MOST_LOOKED_UP
    found = await store.search_runs(which, words, most, unreadable)
    is_complete = found.looked_at < most
    shown = [record.run.id for record in found.records] + [str(problem.run_id) for problem in unreadable]
    is_full = len(shown) >= which.limit
    looked_at: LookedAt | UnsetType = UNSET
    if not is_complete and not (is_list and (is_full or words == Words())):
        every = await _of(transactor, which, words)
        looked_at = LookedAt(
            runs=found.looked_at,
            of=every,
            of_at_least=every is not None and every >= counting.MOST,
            back_to=None if found.last is None else instant(created_at(found.last)),
            last=found.last,
        )
    return RunList(
        runs=await summarise_all(transactor, which.tenant, found.records),
        total=found.total,
        is_complete=is_complete,
        next=min(shown) if is_full else None if is_complete else found.last,
        looked_at=looked_at,
        unreadable=[unreadable_view(problem) for problem in unreadable] or UNSET,
    )


async def _of(transactor: Transactor, which: RunFilter, words: Words) -> int | None:
    """How many runs there are to look at, with the first part; None where an index would have to be read for it."""
    if which.before is not None or not is_read_in_order(which, words):
        return None
    return await transactor.store.count_newest(which.tenant, which.oldest or FIRST_ID, counting.MOST)
