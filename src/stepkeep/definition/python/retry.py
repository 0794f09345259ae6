"""`Retry` as written in Python, with durations as text; it converts to the kernel's `Retry`.

It refuses values out of bounds where they are written. The kernel decides when to retry.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypedDict

from msgspec import UNSET
from msgspec.structs import replace

from stepkeep.definition import arguments
from stepkeep.definition.bounds import DEADLINE, DELAY, MAX_LOSSES
from stepkeep.definition.durations import format_duration, parse_duration
from stepkeep.definition.native.validators import attempts_bound
from stepkeep.kernel import definition as kernel
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.states import NEVER_RETRIED, RETRIED_BY_DEFAULT, Category

Duration = str | timedelta
"""A duration: `"1m30s"`, or a timedelta. A bare number has no unit and is refused."""

JITTER = 0.5
USUAL_ATTEMPTS = kernel.Retry().max_attempts
USUAL_LOSSES = kernel.Retry().max_losses
NATIVE_RETRY = kernel.Retry(jitter=JITTER)
NATIVE_UNDO_RETRY = replace(kernel.UNDO_RETRY, jitter=JITTER)
"""The policies of steps and undos that state none, in YAML and in Python. The seeds' formats have no jitter."""


def undo_policy(declared: kernel.Retry | None) -> kernel.Retry:
    """The policy of an undo whose handler declares this one. A handler's usual number of losses is that of a step."""
    if declared is None:
        return NATIVE_UNDO_RETRY
    losses = kernel.UNDO_RETRY.max_losses if declared.max_losses == USUAL_LOSSES else declared.max_losses
    return replace(declared, max_losses=losses, counts_losses=False)


def microseconds(value: Duration, *, what: str, bounds: tuple[int, int]) -> int:
    """A duration given from Python as whole microseconds, within its bounds."""
    least, most = bounds
    try:
        found = value // timedelta(microseconds=1) if isinstance(value, timedelta) else parse_duration(value)
    except ValueError as problem:
        raise InvalidInput(f"{what}: {problem}") from None
    if not least <= found <= most:
        raise InvalidInput(
            f"{what} is out of bounds: {value}. Give {format_duration(least)} to {format_duration(most)}."
        )
    return found


@dataclass(frozen=True, kw_only=True)
class Retry:
    """How often and how patiently a step is tried.

    `max_attempts` counts every execution, the first included (1 to 10,000; an operator may lower the bound with
    STEPKEEP_MAX_ATTEMPTS). Without it there are 3, or with `max_elapsed` as many as the bound allows: then no retry is
    due later than that after the first attempt began. `max_losses` is how many workers may die or lose their lease: 3,
    or 30 for an undo, of which a lost worker is no attempt. `max=None` means no cap on the delay. `jitter` is the share
    of a delay that a hash of run, step and attempt may take off it, so that runs that fail together do not return
    together; `jitter=0` gives exact delays.
    `on` lists the error categories worth another attempt; by default all but validation, governance, auth,
    conflict and poison, which are never retried.

    >>> Retry(max_attempts=5, initial="500ms").to_kernel().initial
    500000
    >>> Retry(max_elapsed="2h").to_kernel().max_attempts
    10000
    """

    max_attempts: int | None = None
    max_losses: int | None = None
    backoff: str = "exponential"
    initial: Duration = "1s"
    factor: float = 2.0
    max: Duration | None = "30s"
    jitter: float = JITTER
    on: Iterable[str] | None = None
    max_elapsed: Duration | None = None

    def __post_init__(self) -> None:
        if self.on is not None:
            # An iterator would be empty the second time: no failure would ever be retried.
            object.__setattr__(self, "on", tuple(arguments.items("Retry: on", self.on)))
        self.to_kernel()

    def to_kernel(self) -> kernel.Retry:
        """The same as the kernel's value, or InvalidInput saying what is out of bounds."""
        most = attempts_bound()
        attempts = (
            (USUAL_ATTEMPTS if self.max_elapsed is None else most) if self.max_attempts is None else self.max_attempts
        )
        _check_count("max_attempts", attempts, most)
        losses = USUAL_LOSSES if self.max_losses is None else self.max_losses
        _check_count("max_losses", losses, MAX_LOSSES)
        return kernel.Retry(
            max_attempts=attempts,
            max_losses=losses,
            backoff=kernel.Backoff(arguments.choice("Retry: backoff", self.backoff, kernel.Backoff)),
            initial=microseconds(self.initial, what="Retry: initial", bounds=DELAY),
            factor=arguments.number("Retry: factor", self.factor, 1, 100),
            max=None if self.max is None else microseconds(self.max, what="Retry: max", bounds=DELAY),
            jitter=arguments.number("Retry: jitter", self.jitter, 0, 1),
            on=_categories(self.on),
            max_elapsed=UNSET
            if self.max_elapsed is None
            else microseconds(self.max_elapsed, what="Retry: max_elapsed", bounds=DEADLINE),
        )


def _check_count(what: str, value: object, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise InvalidInput(f"Retry: {what} must be a whole number from 1 to {most}, not {arguments.shown(value)}.")


def _categories(given: Iterable[str] | None) -> tuple[Category, ...]:
    if given is None:
        return tuple(sorted(RETRIED_BY_DEFAULT))
    named = arguments.items("Retry: on", given)
    known = ", ".join(sorted(RETRIED_BY_DEFAULT))
    for name in named:
        if not isinstance(name, str) or name not in list(Category):
            raise InvalidInput(f"Retry: {arguments.shown(name)} is no error category. Choose from {known}.")
    found = {Category(name) for name in named}
    if never := sorted(found & NEVER_RETRIED):
        raise InvalidInput(f"Retry: {never[0]} failures are never retried; leave it out of `on`.")
    return tuple(sorted(Category(name) for name in found))


class WrittenRetry(TypedDict, total=False):
    """A retry policy in the words of a definition."""

    max_attempts: int
    max_losses: int
    backoff: str
    initial: str
    factor: float
    max: str | None
    jitter: float
    on: list[str]
    max_elapsed: str


def written_retry(policy: kernel.Retry | Retry) -> WrittenRetry:
    """A retry policy as YAML would give it. One from Python leaves out the losses that it does not state."""
    if isinstance(policy, Retry):
        found = written_retry(policy.to_kernel())
        if policy.max_losses is None:
            del found["max_losses"]
        return found
    written: WrittenRetry = {
        "max_attempts": policy.max_attempts,
        "max_losses": policy.max_losses,
        "backoff": str(policy.backoff),
        "initial": format_duration(policy.initial),
        "factor": policy.factor,
        "max": None if policy.max is None else format_duration(policy.max),
        "jitter": policy.jitter,
        "on": [str(category) for category in policy.on],
    }
    if policy.max_elapsed is not UNSET:
        written["max_elapsed"] = format_duration(policy.max_elapsed)
    return written
