-- Find runs by correlation id, in any or in certain states and perhaps by workflow and business key, newest first,
-- between two ids. A run without a correlation id is its own ($9) and is in no index.
select run.id::text
from (
    select tenant, run_id, workflow, business_key
    from run_details
    where tenant = $1 and correlation_id = $8 and correlation_id <> run_id::text
    union all
    select tenant, run_id, workflow, business_key
    from run_details
    where tenant = $1 and run_id = $9::uuid and correlation_id = $8
) as details
cross join lateral (
    select id
    from runs
    where runs.tenant = $1 and runs.id = details.run_id and ($5::text[] is null or runs.state = any($5::text[]))
    offset 0
) as run
where details.run_id < $2::uuid and details.run_id >= $4::uuid and ($6::text is null or details.workflow = $6)
    and ($7::text is null or details.business_key = $7)
order by details.run_id desc
limit $3
