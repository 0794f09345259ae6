"""Planted bugs in the SQL of noted ends and of firings. `mutants` adds them to its list."""

from __future__ import annotations

from stepkeep_lab.storecheck.planting import SqlMutant

POSTGRES, SQLITE = "postgres", "sqlite"


def _on(store: str, file: str, name: str, what: str, old: str, new: str) -> SqlMutant:
    return SqlMutant(f"{store}-{name}", store, file, what, old, new)


def _on_both(file: str, name: str, what: str, old: str, new: str) -> tuple[SqlMutant, ...]:
    return tuple(_on(store, file, name, what, old, new) for store in (POSTGRES, SQLITE))


TRIGGER_MUTANTS: tuple[SqlMutant, ...] = (
    _on(
        POSTGRES,
        "write_hot",
        "end-by-hand-unnoted",
        "an end that changes all columns is not noted for triggers",
        "where has_ended",
        "where false",
    ),
    _on(
        POSTGRES,
        "write_hot_columns",
        "end-unnoted",
        "the end of a run whose last step succeeds is not noted for triggers",
        "where has_ended",
        "where has_ended and false",
    ),
    _on(
        POSTGRES,
        "write_hot_columns",
        "living-run-noted",
        "a run that goes on is noted as one that has ended",
        "where has_ended",
        "",
    ),
    _on(
        POSTGRES,
        "write_hot_columns",
        "end-noted-for-removed",
        "an end is noted for a trigger that was removed",
        "triggers.kind = 'ended' and triggers.removed_at is null",
        "triggers.kind = 'ended'",
    ),
    _on(
        SQLITE,
        "note_endings",
        "end-noted-for-all-workflows",
        "an end is noted for triggers about other workflows",
        " and triggers.topic = details.workflow",
        "",
    ),
    _on(
        SQLITE,
        "note_endings",
        "end-noted-for-removed",
        "an end is noted for a trigger that was removed",
        " and triggers.removed_at is null",
        "",
    ),
    *_on_both(
        "lock_finished",
        "undecided-run-deleted",
        "a run is deleted although a trigger has not decided about its end",
        "state = 'awaiting'",
        "state = 'waiting'",
    ),
    _on(
        POSTGRES,
        "forget_firings",
        "firing-of-kept-run-forgotten",
        "a firing is forgotten although the run that it is about is kept",
        "\n        and not exists (select 1 from runs r where r.tenant = f.tenant and r.id = f.source::uuid)",
        "",
    ),
    _on(
        SQLITE,
        "forget_firings",
        "firing-of-kept-run-forgotten",
        "a firing is forgotten although the run that it is about is kept",
        "r.id in (f.run_id, f.source)",
        "r.id in (f.run_id)",
    ),
    *_on_both(
        "forget_firings",
        "young-firing-forgotten",
        "a firing is forgotten however young it is",
        "f.watched = 0 and f.made_at < ",
        "f.watched = 0 and f.made_at - f.made_at < ",
    ),
    _on(
        POSTGRES,
        "find_unseen_runs",
        "ended-run-awaited",
        "a run that has ended is found as one whose end is to come",
        "runs.ended_at is null and ",
        "",
    ),
    _on(
        SQLITE,
        "find_unseen_runs",
        "run-of-another-workflow-awaited",
        "a run of another workflow is found for a trigger",
        "d.run_id = runs.id) = ?3",
        "d.run_id = runs.id) >= ''",
    ),
)
