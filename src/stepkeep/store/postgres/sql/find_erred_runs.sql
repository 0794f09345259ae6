-- Find runs that have an error, in any or in certain states and perhaps of one workflow, newest first, between two ids.
-- Each was stopped by something, or is unfinished: indexes have both.
with erred (id, state) as (
    (
        select runs.id, runs.state
        from runs
        where runs.tenant = $1 and runs.id < $2::uuid and runs.id >= $4::uuid and runs.cause is not null
            and runs.error is not null and ($5::text[] is null or runs.state = any($5::text[]))
            and ($6::text is null or exists (
                select from run_details as d where d.tenant = $1 and d.run_id = runs.id and d.workflow = $6))
        order by runs.id desc
        limit $3
    )
    union
    (
        select runs.id, runs.state
        from runs
        where runs.tenant = $1 and runs.id < $2::uuid and runs.id >= $4::uuid and runs.ended_at is null
            and runs.error is not null and ($5::text[] is null or runs.state = any($5::text[]))
            and ($6::text is null or exists (
                select from run_details as d where d.tenant = $1 and d.run_id = runs.id and d.workflow = $6))
        order by runs.id desc
        limit $3
    )
)
select erred.id::text
from erred
order by erred.id desc
limit $3
