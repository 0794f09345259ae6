"""Computes whether a failed attempt is retried, and after which backoff. Arithmetic only.

Jitter comes from a hash of run, step and attempt, so the same failure always has the same backoff.
"""

from __future__ import annotations

import hashlib

from msgspec import UNSET

from stepkeep.kernel.definition import SECOND, Backoff, Retry
from stepkeep.kernel.machine.states import NEVER_RETRIED, Category, ErrorClass

LONGEST_DELAY = 365 * 24 * 3600 * SECOND
"""Limit for policies without one: a doubling backoff must not overflow a column."""


def may_retry(retry: Retry, category: Category, counted: int, error_class: ErrorClass | None = None) -> bool:
    """Whether another attempt follows after `counted` failed, timed-out or lost attempts (this one included)."""
    if retry.classes is not UNSET and error_class is not None and error_class not in retry.classes:
        return False
    return category not in NEVER_RETRIED and category in retry.on and counted < retry.max_attempts


def may_retry_lost(retry: Retry, counted: int, losses: int) -> bool:
    """A lost lease has no category, so only the two limits count. `counted` has the loss if it is an attempt."""
    return counted < retry.max_attempts and losses < retry.max_losses


def is_in_time(retry: Retry, due_at: int, began_at: int) -> bool:
    """Whether a retry that is due then keeps the policy's limit of time; `began_at` is the first attempt's start."""
    return retry.max_elapsed is UNSET or due_at <= began_at + retry.max_elapsed


def delay_after(retry: Retry, counted: int, *, run_id: str, no: int) -> int:
    """The backoff before the next attempt, in microseconds."""
    longest = LONGEST_DELAY if retry.max is None else retry.max
    delay = min(_raw_delay(retry, counted, longest), longest)
    if retry.jitter:
        delay = int(delay * (1 - retry.jitter * _fraction(run_id, no, counted)))
    return delay


def asked_delay(retry: Retry, asked: int) -> int:
    """The delay that a handler asks for, in microseconds; the policy's own limit applies where the seed says so."""
    return min(asked, LONGEST_DELAY if retry.max is None or retry.caps_asked is not True else retry.max)


def _raw_delay(retry: Retry, counted: int, longest: int) -> int:
    if retry.backoff is Backoff.CONSTANT:
        return retry.initial
    if retry.backoff is Backoff.LINEAR:
        return retry.initial * counted
    try:
        return int(retry.initial * retry.factor ** (counted - 1))
    except OverflowError:
        return longest if retry.initial else 0


def _fraction(run_id: str, no: int, counted: int) -> float:
    digest = hashlib.sha256(f"{run_id}:{no}:{counted}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
