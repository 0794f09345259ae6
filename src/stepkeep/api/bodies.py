"""The base of request bodies, parameters that many routes share, and pages of lists.

A body is strict: unknown fields and values of another type are refused, all of them at once. Answers are built by
operations; their models describe them in the OpenAPI document, and a test holds that they tell the truth.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, TypeVar

from fastapi import Header, Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from stepkeep.dialects.registry import names

T = TypeVar("T")

MOST_LISTED = 200
"""The largest page of any list."""

DIALECTS = "|".join(names())


class Body(BaseModel):
    """A body that a client sends."""

    model_config = ConfigDict(extra="forbid", strict=True)


class By(Body):
    """A body that may name the person who acts, beside the owner of the key."""

    by: str | None = Field(
        default=None, max_length=255, description="Another person than the owner of the key; needs the scope vouch."
    )


RUN_ID = "019b7e2c-5a10-7c3e-9d7b-2f6f0a4c81d5"
"""The run of the examples."""

Limit = Annotated[int, Query(ge=1, le=MOST_LISTED, description="How many at most.")]
Cursor = Annotated[str | None, Query(max_length=255, description="`next` of the page before.")]
As = Annotated[
    str | None,
    Query(alias="as", pattern=f"^({DIALECTS})$", description=f"In the words of a dialect: {', '.join(names())}."),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        max_length=255,
        description="The same key with the same body does it once: 200 instead of 201, and the first answer's run.",
    ),
]
_is_time = re.compile(r"\d{4}-\d\d-\d\dt\d\d:\d\d(:\d\d(\.\d+)?)?(z|[+-]\d\d:\d\d)", re.IGNORECASE).fullmatch


def _written(given: Any) -> Any:
    if isinstance(given, str) and _is_time(given):
        return given
    raise ValueError("it is a time with a zone, as in 2026-01-01T00:00:00Z")


Time = Annotated[datetime, BeforeValidator(_written), Field(strict=False, description="A time with a zone.")]
"""A point in time that a client sends. Numbers are none: their unit would be a guess."""
Moment = Annotated[str, Field(examples=["2026-01-01T00:00:00.000Z"], description="UTC, with milliseconds.")]


def page(found: Sequence[T], key: Callable[[T], str], cursor: str | None, limit: int) -> tuple[list[T], str | None]:
    """One page of a list that is read as a whole, after the item that the cursor names, and the next cursor.

    >>> page(["a", "b", "c"], str, "a", 1)
    (['b'], 'b')
    """
    start = 0
    if cursor is not None:
        start = next((place + 1 for place, one in enumerate(found) if key(one) == cursor), len(found))
    shown = list(found[start : start + limit])
    return shown, key(shown[-1]) if shown and start + limit < len(found) else None


class Page(BaseModel):
    """A page of a list; `next` is the `cursor` of the next one, or null at the end."""

    next: str | None = Field(default=None, description="The `cursor` of the next page; null at the end.")


Anything = dict[str, Any]
"""An object whose fields the docs of its operation describe."""
