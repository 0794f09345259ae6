-- Find the finished run of a workflow that has this many finished ones after it.
select run.id::text
from run_details as details
cross join lateral (
    select id
    from runs
    where runs.tenant = details.tenant and runs.id = details.run_id and runs.ended_at is not null
    offset 0
) as run
where details.tenant = $1 and details.workflow = $3
order by details.run_id desc
offset $2
limit 1
