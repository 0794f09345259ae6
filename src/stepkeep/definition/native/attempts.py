"""Counts of attempts in written definitions: types that hold the bound on attempts of one step."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticKnownError

from stepkeep.definition.bounds import MAX_ATTEMPTS, SEED_ATTEMPTS
from stepkeep.definition.native.attempts_bound import attempts_bound


def _attempts(value: int) -> int:
    if value > (bound := attempts_bound()):
        raise PydanticKnownError("less_than_equal", {"le": bound})
    return value


def _seed_attempts(value: int) -> int:
    if value > (bound := attempts_bound(SEED_ATTEMPTS)):
        raise PydanticKnownError("less_than_equal", {"le": bound})
    return value


def _seed_retries(value: int) -> int:
    if value > (bound := attempts_bound(SEED_ATTEMPTS) - 1):
        raise PydanticKnownError("less_than_equal", {"le": bound})
    return value


Attempts = Annotated[int, Field(ge=1, le=MAX_ATTEMPTS), AfterValidator(_attempts)]
"""All executions of a step, the first included."""

SeedAttempts = Annotated[int, Field(ge=1, le=MAX_ATTEMPTS), AfterValidator(_seed_attempts)]
"""The same in a format whose seed says 1 to 10."""

SeedRetries = Annotated[int, Field(ge=0, le=MAX_ATTEMPTS - 1), AfterValidator(_seed_retries)]
"""Executions after the first, in such a format."""
