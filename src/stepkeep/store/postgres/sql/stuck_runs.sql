-- List unfinished runs without a cause to progress: no claimable step, no lease, no timer, no declared wait.
-- A run's timeout is not a cause; the end of its grace period is.
select runs.tenant, runs.id::text
from runs
where runs.ended_at is null and runs.state in ('queued', 'running', 'blocked', 'validating', 'stopping', 'compensating')
    and not (runs.state = 'stopping' and runs.due_at is not null)
    and not exists (
        select
        from steps
        where steps.tenant = runs.tenant and steps.run_id = runs.id
            and (steps.ready_at is not null or steps.due_at is not null
                or steps.state in ('awaiting_approval', 'awaiting_event', 'awaiting_completion', 'awaiting_children')))
    and (runs.tenant, runs.id) not in (select tenant, run_id from quarantine where released_at is null)
order by runs.tenant, runs.id
limit $1
