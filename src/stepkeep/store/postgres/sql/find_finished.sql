-- Find runs of a tenant between two ids that ended by a moment, oldest first.
select id::text
from runs
where tenant = $1 and id > $2::uuid and id < $3::uuid and ended_at <= $4::bigint
order by runs.id
limit $5
