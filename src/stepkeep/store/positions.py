"""Positions in the journal of a tenant, as text that clients keep: a number, or a number with a run and an entry.

A text that is no position is refused. The stores read it; what the number means is each store's own.
"""

from __future__ import annotations

import re

from stepkeep.kernel.errors import InvalidInput
from stepkeep.store.records import FIRST_ID

_is_number = re.compile(r"[0-9]{1,18}").fullmatch
_is_position = re.compile(r"([0-9]{1,18})(?:\.([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.([0-9]{1,13}))?").fullmatch


def position_number(text: str) -> int:
    """A position that is a number.

    >>> position_number("12")
    12
    """
    if not _is_number(text):
        raise InvalidInput(REFUSED)
    return int(text)


def read_position(text: str) -> tuple[int, str, int]:
    """A position that names a transaction, and within it a run and an entry; without those, before all of them.

    >>> read_position("12")
    (12, '00000000-0000-0000-0000-000000000000', 0)
    """
    found = _is_position(text)
    if found is None:
        raise InvalidInput(REFUSED)
    return int(found[1]), found[2] or FIRST_ID, int(found[3] or 0)


REFUSED = "the position is not one of this stream: pass the id of an event as it was given."
