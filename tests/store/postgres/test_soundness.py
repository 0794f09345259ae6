"""Rows of the commonest shapes pass without a call of the function that knows all rules: those shapes break none."""

import itertools
import re
from typing import Any

import asyncpg
import pytest
from tests.suites import in_proof

from stepkeep.kernel.machine.states import AttemptState, RunState, StepState
from stepkeep.store.protocol import Store

NUMBERS: tuple[int | None, ...] = (None, 1)

ROWS: dict[str, dict[str, tuple[Any, ...]]] = {
    "run": {
        "state": tuple(RunState),
        "rollback": ("none", "complete"),
        "cause": (None, "cancel"),
        "policy": (None, "abort", "no such word"),
        "category": (None, "no such word"),
        "ended_at": NUMBERS,
        "due_at": NUMBERS,
        "open": (0, 1),
        "moving": (-1, 0, 1),
        "leased": (0, 1),
        "undoing": (-1, 0, 1),
        "failed": (0,),
        "inbox": (0,),
        "seq": (1,),
    },
    "step": {
        "state": tuple(StepState),
        "ready_at": NUMBERS,
        "due_at": NUMBERS,
        "claimed_at": NUMBERS,
        "settled": NUMBERS,
        "worker": NUMBERS,
        "category": (None, "no such word"),
        "note": (None, "{}", "{"),
        "fence": (-1, 0, 1),
        "queue": (0, 1),
        "unmet": (-1, 0),
        "no": (0,),
        "attempts": (0,),
        "losses": (0,),
    },
    "attempt": {
        "state": tuple(AttemptState),
        "category": (None, "no such word"),
        "fence": (0, 1),
        "number": (-1, 0),
    },
}


@pytest.mark.parametrize(
    ("kind", "each"), [("attempt", 1), ("run", 7), ("step", 7), in_proof("run", 1), in_proof("step", 1)]
)
async def test_a_row_that_passes_by_its_shape_breaks_no_rule(store: Store, url: str, kind: str, each: int) -> None:
    connection = await asyncpg.connect(url)
    try:
        said = await connection.fetchval(
            "select pg_get_constraintdef(oid) from pg_constraint where conname = $1", f"{kind}_is_sound"
        )
        found = re.fullmatch(rf"CHECK \(\((.*) OR (stepkeep_{kind}_is_sound\([^)]*\))\)\)", said, re.DOTALL)
        assert found is not None, said
        shape, sound = found.groups()
        rows = itertools.islice(itertools.product(*ROWS[kind].values()), 0, None, each)
        literals = ", ".join("(" + ", ".join(map(_literal, row)) + ")" for row in rows)
        fields = ", ".join(f"'{name}', given.column{place}" for place, name in enumerate(ROWS[kind], 1))
        # A rule that is broken raises.
        [(passed, were_sound)] = await connection.fetch(
            f"select count(*), count(*) filter (where {sound}) from (values {literals}) as given "
            f"cross join lateral jsonb_populate_record(null::{kind}s, jsonb_build_object({fields})) as {kind}s "
            f"where {shape}"
        )
    finally:
        await connection.close()
    assert passed == were_sound > 0


def _literal(value: Any) -> str:
    return "null" if value is None else str(value) if isinstance(value, int) else f"'{value}'"
