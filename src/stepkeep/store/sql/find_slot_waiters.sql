-- Find runs of a workflow that wait for a slot, in the order in which they are granted one.
select
    slots.tenant, slots.run_id::text, slots.workflow, slots.most, slots.priority, slots.asked_at, slots.granted_at,
    runs.state
from slots join runs on runs.tenant = slots.tenant and runs.id = slots.run_id
where slots.tenant = $1 and slots.workflow = $2 and slots.granted_at is null
    and runs.state not in ('idle', 'paused')
    and not exists (
        select 1 from quarantine q
        where q.tenant = slots.tenant and q.run_id = slots.run_id and q.released_at is null)
order by slots.priority desc, slots.asked_at, slots.run_id
limit $3::int
