-- Find runs with a business key, in any or in certain states and perhaps of one workflow, newest first, between two ids.
select run.id::text
from run_details as details
cross join lateral (
    select id
    from runs
    where runs.tenant = $1 and runs.id = details.run_id and ($5::text[] is null or runs.state = any($5::text[]))
    offset 0
) as run
where details.tenant = $1 and details.run_id < $2::uuid and details.run_id >= $4::uuid and details.business_key = $7
    and ($6::text is null or details.workflow = $6)
order by details.run_id desc
limit $3
