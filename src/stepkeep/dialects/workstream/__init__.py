"""The workstream dialect (seed 004): workstreams of tasks run by workers.

`DIALECT` is created on first use, so that importing the machines alone (`stepkeep.dialects.workstream.machine`) imports
neither the front end nor pydantic.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepkeep.dialects.dialect import Dialect

    DIALECT: Dialect


def __getattr__(name: str) -> Dialect:
    if name != "DIALECT":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _dialect()


@cache
def _dialect() -> Dialect:
    from stepkeep.dialects.dialect import Dialect
    from stepkeep.dialects.workstream.front import FRONT
    from stepkeep.dialects.workstream.machine import JUDGED
    from stepkeep.dialects.workstream.schema import published_schema
    from stepkeep.dialects.workstream.words import WORDS

    return Dialect(judged=JUDGED, front=FRONT, words=WORDS, schema=published_schema())
