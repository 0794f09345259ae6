-- Find the oldest unfinished run of a tenant.
select id::text
from runs
where tenant = $1 and ended_at is null
order by id
limit 1
