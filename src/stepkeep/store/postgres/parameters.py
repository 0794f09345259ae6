"""Makes parameters of statements from rows: numbers for hot rows, arrays for the others.

A hot row is a list of numbers in the order of its columns, without the tenant. Words, runs and bytes are numbers that
refer to other parameters. `write` calls it for every row, so the functions are generated from the columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import msgspec

from stepkeep.kernel.machine.journal import SealedEntry
from stepkeep.kernel.machine.rows import HOT_OF_RUN, HOT_OF_STEP, Attempt, Details, Run, Step
from stepkeep.kernel.machine.states import Rollback, RunState, StepState
from stepkeep.store.columns import Column, Kind, columns_of, generate, json_text
from stepkeep.store.postgres.arrays import Bytes, RowEncoder, ids, names, numbers, packed, words

COMMONEST = (StepState.RUNNING, StepState.SUCCEEDED, Rollback.NONE, StepState.PENDING, StepState.READY, RunState.QUEUED)
VOCABULARIES = [column.type for row in (Step, Run, Attempt) for column in columns_of(row) if column.kind is Kind.WORD]
VOCABULARY = tuple(dict.fromkeys((*COMMONEST, *(word for words in VOCABULARIES for word in words))))
"""Every word that a hot row may hold, the most frequent first, because the server searches from the beginning."""

CODES: dict[str | None, int] = {None: 0, **{word: place for place, word in enumerate(VOCABULARY, 1)}}
WORDS = words(VOCABULARY)

Numbered: TypeAlias = Callable[[Iterable[Any], RowEncoder], str]

ENCODED = {
    Kind.NUMBER: "{}",
    Kind.WORD: "CODES[{}]",
    Kind.RUN: "place[{}]",
    Kind.TEXT: "text({})",
    Kind.BYTES: "put({})",
    Kind.NOTE: "put(encode({}))",
}
"""The number that a column becomes. A missing word has a code, and a missing number stays missing."""


def _expression(column: Column) -> str:
    value = f"row.{column.name}"
    encoded = ENCODED[column.kind].format(value)
    if column.is_nullable and column.kind not in (Kind.NUMBER, Kind.WORD):
        return f"{encoded} if {value} is not None else None"
    return encoded


def _numbered(row: type[msgspec.Struct], sent: Iterable[str] | None = None, *, beside: bool = False) -> Numbered:
    """A function that makes one array literal of rows. `beside`: each row comes with a number, which follows the id of
    its run and replaces the definition."""
    kept = [
        column
        for column in columns_of(row)
        if column.kind is not Kind.TENANT and column.name != "definition_id" and (sent is None or column.name in sent)
    ]
    values = [_expression(column) for column in kept]
    if beside:
        values.insert(1, "number")
    source = (
        "def made(rows, parcel):",
        "    place, put, text, sent = parcel.runs, parcel.put, parcel.put_text, []",
        f"    for {'number, row' if beside else 'row'} in rows:",
        f"        sent += ({', '.join(values)},)",
        "    return packed(sent)",
    )
    scope = {"CODES": CODES, "packed": packed, "encode": msgspec.json.Encoder().encode}
    made: Numbered = generate(source, scope)
    return made


run_numbers = _numbered(Run, beside=True)
details_numbers = _numbered(Details)
step_numbers = _numbered(Step)
entry_numbers = _numbered(SealedEntry)

UNFAILED = {column.name for column in columns_of(Attempt)} - {"category", "error"}

WHOLE_ROWS = (run_numbers, step_numbers, _numbered(Attempt))
HOT_COLUMNS = (
    _numbered(Run, {"id", *HOT_OF_RUN}, beside=True),
    _numbered(Step, {"run_id", "no", *HOT_OF_STEP}),
    _numbered(Attempt, UNFAILED),
)
"""Runs, steps and attempts as `write_hot` and as `write_hot_columns` take them."""


def arrays_of(rows: Sequence[msgspec.Struct]) -> list[Any]:
    """Rows as one array for each column, and two for a column of bytes: the first parameter holds the bytes of all."""
    blob, made, has_bytes = Bytes(), list[Any](), False
    for column in columns_of(type(rows[0])):
        values = [getattr(row, column.name) for row in rows]
        if column.kind is Kind.BYTES:
            made += blob.add(values)
            has_bytes = True
        else:
            made.append(ARRAYS[column.kind](values))
    return [blob.joined(), *made] if has_bytes else made


ARRAYS: dict[Kind, Callable[[Any], Any]] = {
    Kind.TENANT: names,
    Kind.RUN: ids,
    Kind.NUMBER: numbers,
    Kind.TEXT: list,
    Kind.LIST: lambda values: [json_text(value) for value in values],
}
