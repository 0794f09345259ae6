"""The bound on attempts of one step: 10, unless an operator raises it with STEPKEEP_MAX_ATTEMPTS (up to 10,000).

It holds where a definition is read. Runs of a published definition keep their policy, whatever the bound is later. The
native format, the Python `Retry` and the dialects' formats use it.
"""

from __future__ import annotations

import os
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticKnownError

from stepkeep.definition.bounds import MAX_ATTEMPTS, USUAL_ATTEMPTS
from stepkeep.errors import InvalidInput

VARIABLE = "STEPKEEP_MAX_ATTEMPTS"


def attempts_bound() -> int:
    """The bound that holds in this process."""
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return USUAL_ATTEMPTS
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MAX_ATTEMPTS:
        raise InvalidInput(f"{VARIABLE} must be a whole number from 1 to {MAX_ATTEMPTS}, not {text[:40]!r}.")
    return int(text)


def _attempts(value: int) -> int:
    if value > (bound := attempts_bound()):
        raise PydanticKnownError("less_than_equal", {"le": bound})
    return value


def _retries(value: int) -> int:
    if value > (bound := attempts_bound() - 1):
        raise PydanticKnownError("less_than_equal", {"le": bound})
    return value


Attempts = Annotated[int, Field(ge=1, le=MAX_ATTEMPTS), AfterValidator(_attempts)]
"""All executions of a step, the first included."""

Retries = Annotated[int, Field(ge=0, le=MAX_ATTEMPTS - 1), AfterValidator(_retries)]
"""Executions after the first."""
