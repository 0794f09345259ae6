"""Stepkeep: a durable workflow engine. A plan of steps kept as rows, workers under leases, a record of every change.

    import stepkeep as sk

    @sk.step(retry=sk.Retry(max_attempts=5), timeout="30s")
    async def create_account(ctx: sk.Context, email: str) -> dict: ...

    onboarding = sk.Workflow("customer-onboarding", version=3)
    onboarding.step("create-account", create_account)

    with sk.open("sqlite:///app.db") as engine:
        print(engine.run(onboarding, input={"email": "a@b.c"}))

What users may rely on is named once, in `__init__.pyi`, which editors and type checkers read. This module reads it,
too: a name is loaded when it is first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

__version__ = "0.1.0"


@cache
def _homes() -> dict[str, str]:
    """The module of every public name: the lines `from MODULE import NAME as NAME` of the stub."""
    stub = __spec__.loader.get_data(f"{__file__}i").decode()
    rows = [line.split() for line in stub.splitlines() if line.startswith("from stepkeep.")]
    return {name: home for _, home, _, name, *_ in rows}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        # `open` is left out: `from stepkeep import *` must not replace Python's own.
        return sorted(_homes().keys() - {"open"})
    home = _homes().get(name)
    if home is None:
        raise AttributeError(f"module 'stepkeep' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Every public name, whether it is loaded already or not."""
    return sorted({*globals(), *_homes()})
