-- The state of a step that waits for its children: runs of other workflows, or steps that it has added to the plan.

create or replace function stepkeep_step_is_sound(step steps) returns boolean language plpgsql immutable as $$
declare
    broken text := case
        when step.state not in (
            'pending', 'ready', 'running', 'validating', 'retrying', 'awaiting_approval', 'awaiting_event',
            'awaiting_completion', 'awaiting_children', 'succeeded', 'failed', 'skipped', 'cancelled') then 'step_state'
        when step.category not in (
            'transient', 'external', 'timeout', 'agent', 'unknown', 'validation', 'governance', 'auth', 'conflict',
            'poison') then 'step_category'
        when least(step.no, step.fence, step.attempts, step.losses, step.unmet) < 0 then 'step_counters'
        when step.state = 'ready' and step.ready_at is null then 'ready_step_is_claimable'
        when step.ready_at is not null
            and (step.state not in ('ready', 'validating') or step.worker is not null or step.queue <= 0)
            then 'claimable_step_may_be_claimed'
        when step.state = 'running' and step.worker is null then 'running_step_is_leased'
        when step.state = 'validating' and (step.worker is null) <> (step.ready_at is not null)
            then 'validating_step_is_leased_or_claimable'
        when (step.worker is not null or step.claimed_at is not null)
            and (step.state not in ('running', 'validating') or step.fence <= 0 or step.worker is null
                or step.claimed_at is null or step.due_at is null) then 'lease_is_whole'
        when step.due_at is not null and step.worker is null
            and step.state not in (
                'retrying', 'awaiting_approval', 'awaiting_event', 'awaiting_completion', 'awaiting_children')
            then 'timer_has_a_meaning'
        when step.state = 'retrying' and step.due_at is null then 'retrying_step_has_a_timer'
        when (step.settled is not null) <> (step.state in ('succeeded', 'failed', 'skipped', 'cancelled'))
            then 'settled_step_has_its_place'
        when step.note is null and step.state = 'awaiting_event' then 'waiting_step_names_its_event'
        when step.note is null and step.state = 'awaiting_completion' then 'waiting_step_has_a_token'
    end;
begin
    if broken is null then
        if step.note is null then
            return true;
        end if;
        begin
            broken := case
                when step.note::json is null then 'note_is_json'
                when step.state = 'awaiting_event' and coalesce(step.note::json ->> 'event', '') = ''
                    then 'waiting_step_names_its_event'
                when step.state = 'awaiting_completion' and coalesce(step.note::json ->> 'token', '') = ''
                    then 'waiting_step_has_a_token'
            end;
        exception when invalid_text_representation then
            broken := 'note_is_json';
        end;
        if broken is null then
            return true;
        end if;
    end if;
    raise exception using errcode = 'check_violation', table = 'steps', constraint = broken,
        message = format('a row of steps breaks the rule "%s"', broken);
end $$;
