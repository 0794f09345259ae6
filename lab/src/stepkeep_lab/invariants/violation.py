"""A broken invariant, as an exception with the name of the invariant."""

from __future__ import annotations


class Violation(Exception):
    """An invariant that does not hold; `name` says which."""

    def __init__(self, name: str, what: str) -> None:
        self.name, self.what = name, what
        super().__init__(f"{name}: {what}")


def must(holds: bool, name: str, what: str, *about: object) -> None:
    """Raise if it does not hold. `what` is formatted only then, because the model checker asks millions of times."""
    if not holds:
        raise Violation(name, what.format(*about))
