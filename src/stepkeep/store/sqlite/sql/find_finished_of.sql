-- Find runs of a workflow between two ids that ended by a given time and may go, oldest first.
select runs.id
from run_details d
cross join runs on runs.tenant = d.tenant and runs.id = d.run_id
where d.tenant = ?1 and d.workflow = ?6 and d.run_id > ?2 and d.run_id < ?3 and runs.ended_at <= ?4
-- part: may_go
order by d.run_id
limit ?5
