"""What a part of a store is: tables with statements of their own, which are sent through the store.

Both databases have these statements under the same names. Nothing here decides or knows SQL; the model store of the
laboratory overrides every method. A store makes its parts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import Any, Protocol, TypeVar

from stepkeep.store.reading import Convert

T = TypeVar("T")

Statement = tuple[str, tuple[Any, ...]]
Rows = list[list[Any]]


class Read(Protocol):
    """Send a statement, and convert its rows."""

    def __call__(self, convert: Convert[T], statement: str, *arguments: Any) -> Coroutine[Any, Any, list[T]]: ...


class Transact(Protocol):
    """Run statements in one transaction; answers the rows of each. An exception of `check`, which is given them before
    the commit, rolls it back."""

    def __call__(self, statements: Sequence[Statement], check: Callable[[Rows], None] = ..., /) -> Awaitable[Rows]: ...


class Part:
    """A part of a store. `time` is the parameter from which a statement has its time; `can_exist` tells whether the
    database accepts a text as the id of a run."""

    def __init__(
        self,
        statements: SimpleNamespace,
        read: Read,
        transact: Transact,
        time: Callable[[], int],
        can_exist: Callable[[str], bool],
    ) -> None:
        self._sql, self._read, self._transact = statements, read, transact
        self._time, self._can_exist = time, can_exist
