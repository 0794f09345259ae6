"""The two suites. `make test` deselects what is marked `proof`; `make proof` selects it.

A check that takes long has two parameters: a short one for `make test` and a long one, made here, for `make proof`.
"""

from __future__ import annotations

from collections.abc import Callable
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
