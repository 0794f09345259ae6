-- Find runs of a tenant between two ids that ended by a given time, oldest first.
select id
from runs
where tenant = ?1 and id > ?2 and id < ?3 and ended_at <= ?4
    and not exists (
        select 1 from quarantine q where q.tenant = runs.tenant and q.run_id = runs.id and q.released_at is null)
order by id
limit ?5
