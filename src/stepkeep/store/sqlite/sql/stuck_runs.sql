-- List unfinished runs without a cause to progress: no claimable step, no lease, no timer, no declared
-- wait, no slot to come.
-- A run's timeout is not a cause; the end of its grace period is.
select r.tenant, r.id
from runs r indexed by runs_live
where r.ended_at is null and r.state in ('queued', 'running', 'blocked', 'validating', 'stopping', 'compensating')
    and not (r.state = 'stopping' and r.due_at is not null)
    and not exists (
        select 1
        from steps s
        where s.tenant = r.tenant and s.run_id = r.id
            and (s.ready_at is not null or s.due_at is not null
                 or s.state in ('awaiting_approval', 'awaiting_event', 'awaiting_completion', 'awaiting_children')))
    and not (r.state = 'queued' and exists (
        select 1 from slots where slots.tenant = r.tenant and slots.run_id = r.id and slots.granted_at is null))
    and not exists (
        select 1 from quarantine q where q.tenant = r.tenant and q.run_id = r.id and q.released_at is null)
order by r.tenant, r.id
limit ?1
