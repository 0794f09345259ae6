"""Reads what handlers logged, from the stream that has it: the lines of each attempt of a step, as views show them.

It only reads; the worker writes the stream. Views of steps call it.
"""

from __future__ import annotations

import msgspec

from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.streams.writing import LOG


async def read_log(transactor: Transactor, tenant: str, run_id: str, no: int) -> dict[int, list[str]]:
    """The lines that each attempt of a step has logged, by its fence. What cannot be opened here is left out."""
    found: dict[int, list[str]] = {}
    visible = transactor.payloads.seal.visible
    for size in await transactor.store.streams.list_sizes(tenant, run_id):
        if (size.no, size.name) != (no, LOG):
            continue
        for part in await transactor.store.streams.read_attempt(tenant, run_id, no, size.fence):
            if part.name == LOG and isinstance(lines := msgspec.json.decode(visible(part.body)), list):
                found.setdefault(size.fence, []).extend(f"{line['level']} {line['text']}" for line in lines)
    return found
