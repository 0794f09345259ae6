-- Read the slot of a run, which waits for it or holds it.
select tenant, run_id::text, workflow, most, priority, asked_at, granted_at
from slots
where tenant = $1 and run_id = $2::uuid
