"""The ioa dialect (seed 000): workflow resources of `ioa.dev/v0.2`, their state machines and their shapes.

Importing the package loads nothing; `machine` is plain data for the judge, and `DIALECT` imports the front end.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepkeep.dialects.dialect import Dialect

    DIALECT: Dialect


def __getattr__(name: str) -> Any:
    if name == "DIALECT":
        return _dialect()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _dialect() -> Dialect:
    from stepkeep.dialects.dialect import Dialect
    from stepkeep.dialects.ioa.front import FRONT
    from stepkeep.dialects.ioa.machine import JUDGED
    from stepkeep.dialects.ioa.schema import published_schema
    from stepkeep.dialects.ioa.words import WORDS

    return Dialect(judged=JUDGED, front=FRONT, words=WORDS, schema=published_schema())
