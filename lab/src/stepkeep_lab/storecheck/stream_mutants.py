"""Planted bugs in the SQL of streams, each in both stores. `mutants` has them among all others."""

from __future__ import annotations

from stepkeep_lab.storecheck.planting import SqlMutant

BUGS: tuple[tuple[str, str, str, str, str], ...] = (
    (
        "write_held_stream",
        "stream-late-chunk",
        "a chunk of an attempt that has lost its step to another is accepted",
        "fence = $4",
        "fence >= $4",
    ),
    (
        "write_held_stream",
        "stream-other-worker",
        "a worker that does not hold the step appends to its stream",
        "worker = $5",
        "worker <= $5",
    ),
    (
        "write_held_stream",
        "stream-bytes",
        "the bytes of earlier rows are not counted",
        "coalesce(last.total, 0) + (given",
        "0 + (given",
    ),
    (
        "read_stream_rows",
        "stream-again",
        "a reader is given the row again that it has",
        "seq > $3",
        "seq >= $3",
    ),
    (
        "read_new_stream_rows",
        "stream-tail-again",
        "a tail is given the rows again that it has",
        "seq > ",
        "seq >= ",
    ),
    (
        "list_streams",
        "stream-sizes",
        "of the chunks of an attempt, those of its largest row alone are counted",
        "max(start + count)",
        "max(count)",
    ),
    (
        "0046_streams",
        "stream-place-reused",
        "a position of a stream is used twice",
        "create unique index stream_rows_place",
        "create index stream_rows_place",
    ),
)
"""Each bug: the statement, its name, what it would mean, and the text that becomes another, as PostgreSQL has it."""


def _of(store: str) -> tuple[SqlMutant, ...]:
    placeholder = "$" if store == "postgres" else "?"
    return tuple(
        SqlMutant(f"{store}-{name}", store, file, what, old.replace("$", placeholder), new.replace("$", placeholder))
        for file, name, what, old, new in BUGS
    )


STREAM_MUTANTS: tuple[SqlMutant, ...] = (*_of("postgres"), *_of("sqlite"))
