"""Planted bugs in the SQL of adoptions. `mutants` adds them to its list."""

from __future__ import annotations

from stepkeep_lab.storecheck.planting import SqlMutant

POSTGRES, SQLITE = "postgres", "sqlite"


def _on(store: str, file: str, name: str, what: str, old: str, new: str) -> SqlMutant:
    return SqlMutant(f"{store}-{name}", store, file, what, old, new)


ADOPTION_MUTANTS: tuple[SqlMutant, ...] = (
    _on(
        SQLITE,
        "load_adoptions",
        "owner-unseen",
        "a second retry does not find the run that owns the undo",
        "a.source_run = w.value ->> 1",
        "a.run_id = w.value ->> 1",
    ),
    _on(
        POSTGRES,
        "load_adoptions",
        "owner-unseen",
        "a second retry does not find the run that owns the undo",
        "adoptions.source_run = wanted.run_id",
        "adoptions.run_id = wanted.run_id",
    ),
    _on(SQLITE, "release_adoptions", "undo-kept", "a retry does not give the undo away", "owned = 0", "owned = 1"),
    _on(POSTGRES, "release_adoptions", "undo-kept", "a retry does not give the undo away", "owned = 0", "owned = 1"),
    _on(SQLITE, "find_reruns", "reruns-oldest-first", "the runs that repeat a run come oldest first", "desc", "asc"),
    _on(POSTGRES, "find_reruns", "reruns-oldest-first", "the runs that repeat a run come oldest first", "desc", "asc"),
)
