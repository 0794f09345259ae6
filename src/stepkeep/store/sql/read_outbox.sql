-- Read the outbox of a run.
select tenant, run_id::text, seq, number, name, payload, created_at
from outbox
where tenant = $1 and run_id = $2
order by seq, number
