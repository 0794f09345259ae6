-- A run changes its state only with a journal entry, and leaves `idle` only by a start or a cancel.
--
-- One transaction may make several hops, so the row of a run that starts may go from idle to running at once. What no
-- hop explains is refused: a new state at the same sequence, or a run that runs and was never started.

create trigger run_starts_before_it_runs after update of state on runs for each row
    when (new.state <> old.state and (
        new.seq = old.seq or (old.state = 'idle' and new.started_at is null and new.state <> 'cancelled')))
    execute function stepkeep_refuse('a run changes its state with a journal entry, and leaves idle when it is started');
