"""The type of the fixture `hold`."""

from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

T = TypeVar("T")


class Hold(Protocol):
    """Enters an async context manager for the rest of the test."""

    def __call__(self, manager: AbstractAsyncContextManager[T]) -> T: ...
