-- Find runs of a workflow in any or in certain states, newest first, before a run.
select run.id::text
from run_details as details
cross join lateral (
    select id
    from runs
    where runs.tenant = $1 and runs.id = details.run_id and ($4::text[] is null or runs.state = any($4::text[]))
    offset 0
) as run
where details.tenant = $1 and details.run_id < $2::uuid and details.workflow = $5
order by details.run_id desc
limit $3
