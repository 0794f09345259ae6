"""The two suites. `make test` deselects what is marked `proof`; `make proof` selects it.

A check that takes long has two parameters: a short one for `make test` and a long one, made here, for `make proof`.
"""

from __future__ import annotations

from typing import Any

import pytest


def in_proof(*values: Any, name: str | None = None) -> Any:
    """A parameter set that only `make proof` runs."""
    return pytest.param(*values, id=name, marks=pytest.mark.proof)


def short_and_all(short: Any, everything: Any, name: Any = str) -> list[Any]:
    """Parameters of one test: those of `short` run with `make test`, the others of `everything` with `make proof`."""
    kept = list(short)
    return [pytest.param(one, id=name(one)) if one in kept else in_proof(one, name=name(one)) for one in everything]
