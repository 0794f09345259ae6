"""The `linear` dialect: seed 002's linear workflows, instance and step states, and the rows of its tables.

`DIALECT` is created on first use, so that importing the machine alone imports no front end.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name != "DIALECT":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import json
    from importlib.resources import files

    from stepkeep.dialects.dialect import Dialect
    from stepkeep.dialects.linear.front import FRONT
    from stepkeep.dialects.linear.machine import JUDGED
    from stepkeep.dialects.linear.words import WORDS

    schema = json.loads(files(__name__).joinpath("schema.json").read_text(encoding="utf-8"))
    made = Dialect(judged=JUDGED, front=FRONT, words=WORDS, schema=schema)
    globals()["DIALECT"] = made
    return made
