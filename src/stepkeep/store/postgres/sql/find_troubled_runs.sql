-- Find runs that were stopped by a failure, a timeout or a cancel, in certain states and perhaps of one workflow,
-- newest first, between two ids.
select runs.id::text
from runs
cross join lateral (
    select workflow
    from run_details
    where run_details.tenant = runs.tenant and run_details.run_id = runs.id
    offset 0
) as details
where runs.tenant = $1 and runs.id < $2::uuid and runs.id >= $4::uuid and runs.cause is not null
    and runs.state = any($5::text[]) and ($6::text is null or details.workflow = $6)
order by runs.id desc
limit $3
