-- Read under which keys the parked steps of a run wait.
select tenant, run_id::text, no, name, key, queue, priority, asked_at
from limit_waits
where tenant = $1 and run_id = $2::uuid
order by no
