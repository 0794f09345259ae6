-- Find the finished run of a workflow that has this many finished ones after it.
select d.run_id
from run_details d
cross join runs r on r.tenant = d.tenant and r.id = d.run_id
where d.tenant = ?1 and d.workflow = ?3 and r.ended_at is not null
order by d.run_id desc
limit 1 offset ?2
