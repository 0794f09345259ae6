"""The two suites. `make test` deselects what is marked `proof`; `make proof` selects it.

A check that takes long has two parameters: a short one for `make test` and a long one, made here, for `make proof`.
A test that runs on both stores runs on one of them with `make test`, drawn by its name, and on the other with
`make proof`. The contract of the stores (`tests/store`) runs on both with `make test`.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings


def in_proof(*values: Any, name: str | None = None) -> Any:
    """A parameter set that only `make proof` runs."""
    return pytest.param(*values, id=name, marks=pytest.mark.proof)


def short_and_all(short: Any, everything: Any, name: Any = str) -> list[Any]:
    """Parameters of one test: those of `short` run with `make test`, the others of `everything` with `make proof`."""
    kept = list(short)
    return [pytest.param(one, id=name(one)) if one in kept else in_proof(one, name=name(one)) for one in everything]


def some(cases: Iterable[Any], nth: int, name: Callable[[Any], str] | None = None) -> list[Any]:
    """Parameters of one test: every nth case runs with `make test`, the others with `make proof`."""
    return [_case(case, name, () if at % nth == 0 else pytest.mark.proof) for at, case in enumerate(cases)]


def _case(case: Any, name: Callable[[Any], str] | None, marks: Any) -> Any:
    if hasattr(case, "marks"):
        return case  # a parameter set, such as one of `in_proof`
    values = case if isinstance(case, tuple) and not hasattr(case, "_fields") else (case,)
    return pytest.param(*values, id=name(case) if name else None, marks=marks)


def every(nth: int) -> pytest.MarkDecorator:
    """Mark a test of many cases that has the argument `nth`: `make test` takes every nth case, `make proof` all."""
    return pytest.mark.parametrize("nth", [nth, in_proof(1)], ids="every {}th case".format)


def first_on(store: str) -> pytest.MarkDecorator:
    """Mark a test of `database_url`: with `make test` it runs on this store only, with `make proof` on the other."""
    others = [in_proof(other) for other in ("sqlite", "postgres") if other != store]
    return pytest.mark.parametrize("database_url", [store, *others], indirect=True)


def drawn(short: int, everything: int, *values: Any, **names: Any) -> Callable[[Callable[..., None]], Any]:
    """A property: hypothesis draws `short` examples of the strategies with `make test`, `everything` with the other."""

    def decorate(check: Callable[..., None]) -> Any:
        @pytest.mark.parametrize("examples", [short, in_proof(everything)])
        def run(examples: int) -> None:
            chosen = settings(
                max_examples=examples, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
            )
            chosen(given(*values, **names)(check))()

        run.__name__, run.__qualname__, run.__doc__ = check.__name__, check.__qualname__, check.__doc__
        return run

    return decorate


STORES = {"sqlite": "sqlite", "postgres": "postgres", "on_store": "sqlite", "on_postgres": "postgres"}
"""The store that a parameter of a test names."""

STORE_IN_NAME = re.compile(rf"(?<=[\[-])({'|'.join(STORES)})(?=[\]-])")


def halve(items: Sequence[pytest.Item]) -> None:
    """Mark as `proof` one of the two forms of each test that would run on both stores.

    A test that was asked for by its full name with one store has no second form here, and runs.
    """
    forms: dict[str, dict[str, pytest.Item]] = defaultdict(dict)
    for item in items:
        if (store := store_of(item)) and not item.get_closest_marker("proof"):
            forms[_without_store(item)][store] = item
    for name, of_stores in forms.items():
        if len(of_stores) == len(set(STORES.values())):
            of_stores[_left_for_proof(name)].add_marker(pytest.mark.proof)


def store_of(item: pytest.Item) -> str | None:
    """The store that a parameter of this test names, if exactly one does."""
    found = [STORES[value] for value in _parameters(item).values() if isinstance(value, str) and value in STORES]
    return found[0] if len(found) == 1 else None


def _without_store(item: pytest.Item) -> str:
    """The full name of a test without its store."""
    return STORE_IN_NAME.sub("", item.nodeid, count=1)


def _parameters(item: pytest.Item) -> dict[str, object]:
    callspec: Any = getattr(item, "callspec", None)
    return dict(callspec.params) if callspec is not None else {}


def _left_for_proof(name: str) -> str:
    stores = sorted(set(STORES.values()))
    return stores[hashlib.sha256(name.encode()).digest()[0] % len(stores)]
