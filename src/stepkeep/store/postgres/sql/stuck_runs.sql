-- List unfinished runs without a cause to progress: no claimable step, no lease, no timer, no declared wait, no slot to
-- come. A run's timeout is not a cause; the end of its grace period is. The unfinished runs are read first, because a
-- plan in the order of the primary key would read the finished ones too.
with live as materialized (
    select runs.tenant, runs.id, runs.state
    from runs
    where runs.ended_at is null
        and runs.state in ('queued', 'running', 'blocked', 'validating', 'stopping', 'compensating')
        and not (runs.state = 'stopping' and runs.due_at is not null)
)
select live.tenant, live.id::text
from live
where not coalesce((
        select true
        from steps
        where steps.tenant = live.tenant and steps.run_id = live.id
            and (steps.ready_at is not null or steps.due_at is not null
                or steps.state in ('awaiting_approval', 'awaiting_event', 'awaiting_completion', 'awaiting_children'))
        limit 1), false)
    and not coalesce((
        select true
        from slots
        where live.state = 'queued' and slots.tenant = live.tenant and slots.run_id = live.id
            and slots.granted_at is null
        limit 1), false)
    and (live.tenant, live.id) not in (select tenant, run_id from quarantine where released_at is null)
order by live.tenant, live.id
limit $1
