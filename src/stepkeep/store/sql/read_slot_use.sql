-- Read how many runs of each workflow of a tenant hold a slot, and how many wait for one.
select
    slots.workflow, count(slots.granted_at), count(*) - count(slots.granted_at), min(slots.most)
from slots join runs on runs.tenant = slots.tenant and runs.id = slots.run_id
where slots.tenant = $1 and runs.ended_at is null and runs.state <> 'idle'
group by slots.workflow
order by slots.workflow
limit $2::int
