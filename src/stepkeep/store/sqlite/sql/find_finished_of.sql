-- Find runs of a workflow between two ids that ended by a given time, oldest first.
select d.run_id
from run_details d
cross join runs r on r.tenant = d.tenant and r.id = d.run_id
where d.tenant = ?1 and d.workflow = ?6 and d.run_id > ?2 and d.run_id < ?3 and r.ended_at <= ?4
    and not exists (
        select 1 from quarantine q where q.tenant = d.tenant and q.run_id = d.run_id and q.released_at is null)
order by d.run_id
limit ?5
