-- Find runs of a tenant in any or in certain states, newest first, before a run.
select id::text
from runs
where tenant = $1 and id < $2::uuid and ($4::text[] is null or state = any($4::text[]))
order by runs.id desc
limit $3
