"""Remembers what is read of a function, for as long as the function lives. Pure but for that memory.

A cache with strong references would keep functions, and everything that their closures hold, after their program has
dropped them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")
Function = Callable[..., Any]


def for_each_function(read: Callable[[Function], T]) -> Callable[[Function], T]:
    """The same function with a memory; a callable that cannot be remembered is read each time.

    >>> for_each_function(lambda function: function.__name__)(print)
    'print'
    """
    known: WeakKeyDictionary[Function, T] = WeakKeyDictionary()

    def remembered(function: Function) -> T:
        with suppress(TypeError):
            if (found := known.get(function)) is not None:
                return found
        found = read(function)
        with suppress(TypeError):
            known[function] = found
        return found

    return remembered
