-- Find runs of a tenant in any or in certain states, newest first, between two ids.
select id::text
from runs
where tenant = $1 and id < $2::uuid and id >= $4::uuid and ($5::text[] is null or state = any($5::text[]))
order by runs.id desc
limit $3
