-- Find runs that were stopped by a failure, a timeout or a cancel, in certain states and perhaps of one workflow,
-- newest first, before a run.
select runs.id::text
from runs
cross join lateral (
    select workflow
    from run_details
    where run_details.tenant = runs.tenant and run_details.run_id = runs.id
    offset 0
) as details
where runs.tenant = $1 and runs.id < $2::uuid and runs.cause is not null and runs.state = any($4::text[])
    and ($5::text is null or details.workflow = $5)
order by runs.id desc
limit $3
