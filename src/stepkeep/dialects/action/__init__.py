"""The action dialect (seed 003): WorkflowV1 documents, actions with tokens and compensation hooks, evidence.

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
    from stepkeep.dialects.action.front import FRONT
    from stepkeep.dialects.action.machine import JUDGED
    from stepkeep.dialects.action.schema import published_schema
    from stepkeep.dialects.action.words import WORDS
    from stepkeep.dialects.dialect import Dialect

    return Dialect(judged=JUDGED, front=FRONT, words=WORDS, schema=published_schema())
