-- Find runs of a tenant between two ids that ended by a given time and may go, oldest first.
select runs.id::text
from runs
where runs.tenant = $1 and runs.id > $2::uuid and runs.id < $3::uuid and runs.ended_at <= $4::bigint
-- part: may_go
order by runs.id
limit $5
