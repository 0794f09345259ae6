"""Explorations of the dialects, made once per test process: each takes seconds, and many tests ask for the same."""

from __future__ import annotations

from stepkeep.dialects.dialect import JudgedDialect
from stepkeep.operations.logs.log import canonical_machines
from stepkeep_lab.modelcheck.refinement import Product, Refinement, explore

MACHINES = canonical_machines()

_products: dict[str, dict[str, Product]] = {}


def explored(judged: JudgedDialect) -> dict[str, Product]:
    """What the engine shows in every machine of a dialect.

    `judged` may differ from the dialect in its lists of extensions and of forbidden pairs, which play no part in the
    exploration. For any other change call `refine` itself.
    """
    if judged.name not in _products:
        _products[judged.name] = explore(judged, MACHINES)
    products = _products[judged.name]
    for name, product in products.items():
        product.view = getattr(judged, name)
    return products


def refined(judged: JudgedDialect) -> Refinement:
    """The same as `refine` gives."""
    products = explored(judged)
    return Refinement(
        judged.name,
        tuple(breach for product in products.values() for breach in product.breaches()),
        {name: frozenset(product.told) for name, product in products.items()},
        sum(product.explored for product in products.values()),
    )
