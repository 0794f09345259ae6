-- Find claimable steps of one queue in claim order: priority, ready time, run, number.
select priority, ready_at, run_id, no, tenant
from steps
where queue = ?1 and ready_at between ?2 and ?3
order by priority desc, ready_at, run_id, no
limit ?4
