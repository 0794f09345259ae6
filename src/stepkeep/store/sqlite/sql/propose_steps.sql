-- Find claimable steps of one queue in claim order: priority, ready time, run, number.
select priority, ready_at, run_id, no, tenant
from steps
where queue = ?1 and ready_at < 100000000000000000 and ready_at between ?2 and ?3
    and not exists (
        select 1 from quarantine q where q.tenant = steps.tenant and q.run_id = steps.run_id and q.released_at is null)
order by priority desc, ready_at, run_id, no
limit ?4
