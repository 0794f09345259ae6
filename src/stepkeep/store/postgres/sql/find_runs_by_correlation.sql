-- Find runs by correlation id, in any or in certain states and perhaps by workflow and business key, newest first, before a
-- run. A run without a correlation id is its own ($8) and is in no index.
select run.id::text
from (
    select tenant, run_id, workflow, business_key
    from run_details
    where tenant = $1 and correlation_id = $7 and correlation_id <> run_id::text
    union all
    select tenant, run_id, workflow, business_key
    from run_details
    where tenant = $1 and run_id = $8::uuid and correlation_id = $7
) as details
cross join lateral (
    select id
    from runs
    where runs.tenant = $1 and runs.id = details.run_id and ($4::text[] is null or runs.state = any($4::text[]))
    offset 0
) as run
where details.run_id < $2::uuid and ($5::text is null or details.workflow = $5)
    and ($6::text is null or details.business_key = $6)
order by details.run_id desc
limit $3
