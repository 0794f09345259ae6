"""The two suites. `make test` deselects what is marked `proof`; `make proof` selects it.

A check that takes long has two parameters: a short one for `make test` and a long one, made here, for `make proof`.
A test of both stores runs on both with `make test`. One that takes more than a second (`slow_tests.txt`) runs on
PostgreSQL there, and on SQLite with `make proof`.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
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


SLOW = frozenset(Path(__file__).with_name("slow_tests.txt").read_text(encoding="utf-8").split())
"""Tests that take more than a second on a store, or have a crowd of forms. `python -m tests.suites LOG` finds them in
what `pytest -m "" --durations=0` printed."""


def halve(items: Sequence[pytest.Item], slow: Collection[str] = SLOW) -> None:
    """Mark as `proof` the form on SQLite of each slow test that would run on both stores.

    A test that was asked for by its full name with one store has no second form here, and runs.
    """
    forms: dict[str, dict[str, pytest.Item]] = defaultdict(dict)
    for item in items:
        is_slow = item.nodeid.partition("[")[0] in slow
        if is_slow and (store := store_of(item)) and not item.get_closest_marker("proof"):
            forms[_without_store(item)][store] = item
    for of_stores in forms.values():
        if len(of_stores) == len(set(STORES.values())):
            of_stores["sqlite"].add_marker(pytest.mark.proof)


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


def _slow(log: str) -> Iterator[str]:
    """The names of tests of both stores that took more than a second, from a log of pytest with their durations."""
    for seconds, name in re.findall(r"^(\d+\.\d+)s call +(\S+)\[(?=.*(?:sqlite|postgres))", log, re.MULTILINE):
        if float(seconds) > 1:
            yield name


if __name__ == "__main__":
    sys.stdout.write("".join(f"{name}\n" for name in sorted(set(_slow(Path(sys.argv[1]).read_text(encoding="utf-8"))))))
