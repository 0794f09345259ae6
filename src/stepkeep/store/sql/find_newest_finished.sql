-- Find the finished run of a tenant that has this many finished ones after it.
select id::text
from runs
where tenant = $1 and ended_at is not null
order by runs.id desc
limit 1 offset $2
