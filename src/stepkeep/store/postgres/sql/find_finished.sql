-- Find runs of a tenant between two ids that ended by a given time, oldest first.
select id::text
from runs
where tenant = $1 and id > $2::uuid and id < $3::uuid and ended_at <= $4::bigint
    and (tenant, id) not in (select tenant, run_id from quarantine where released_at is null)
order by runs.id
limit $5
