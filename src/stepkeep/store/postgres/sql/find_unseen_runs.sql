-- Find unfinished runs of a workflow after a given id for which a trigger has no firing, oldest first.
select runs.id::text
from runs
cross join lateral (
    select workflow
    from run_details
    where run_details.tenant = runs.tenant and run_details.run_id = runs.id
    offset 0
) as details
where runs.tenant = $1 and runs.ended_at is null and runs.id > $4::text::uuid and details.workflow = $3
    and not exists (
        select 1 from firings
        where firings.tenant = runs.tenant and trigger_name = $2 and moment = runs.id::text)
order by runs.id
limit $5
