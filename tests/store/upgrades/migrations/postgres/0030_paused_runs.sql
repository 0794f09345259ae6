-- A run may be paused.

create or replace function stepkeep_run_is_sound(run runs) returns boolean language plpgsql immutable as $$
declare
    broken constant text := case
        when run.state not in (
            'idle', 'queued', 'running', 'blocked', 'paused', 'validating', 'stopping', 'compensating',
            'succeeded', 'failed', 'cancelled', 'rolled_back') then 'run_state'
        when run.cause not in ('failure', 'timeout', 'cancel') then 'run_cause'
        when run.policy not in ('abort', 'skip', 'continue', 'compensate') then 'run_policy'
        when run.category not in (
            'transient', 'external', 'timeout', 'agent', 'unknown', 'validation', 'governance', 'auth', 'conflict',
            'poison') then 'run_category'
        when run.rollback not in ('none', 'complete', 'partial') then 'run_rollback'
        when least(run.seq, run.open, run.moving, run.leased, run.failed, run.undoing, run.inbox) < 0
            then 'run_counters'
        when (run.ended_at is not null) <> (run.state in ('succeeded', 'failed', 'cancelled', 'rolled_back'))
            then 'finished_run_has_an_end'
        when run.ended_at is not null
            and (run.due_at is not null or run.open <> 0 or run.moving <> 0 or run.leased <> 0 or run.undoing <> 0)
            then 'finished_run_is_at_rest'
        when run.cause is null and run.state in ('stopping', 'compensating', 'failed', 'cancelled', 'rolled_back')
            then 'troubled_run_has_a_cause'
        when run.leased > run.moving then 'leased_steps_are_moving'
    end;
begin
    if broken is null then
        return true;
    end if;
    raise exception using errcode = 'check_violation', table = 'runs', constraint = broken,
        message = format('a row of runs breaks the rule "%s"', broken);
end $$;
