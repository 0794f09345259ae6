-- Find unfinished runs, in certain states and perhaps of one workflow, newest first, before a run.
select runs.id::text
from runs
where runs.tenant = $1 and runs.id < $2::uuid and runs.ended_at is null and runs.state = any($4::text[])
    and ($5::text is null or exists (
        select
        from run_details as details
        where details.tenant = runs.tenant and details.run_id = runs.id and details.workflow = $5))
order by runs.id desc
limit $3
