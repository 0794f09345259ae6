-- Read what a run has told the outside world.
select tenant, run_id::text, seq, number, name, payload, created_at
from outbox
where tenant = $1 and run_id = $2
order by seq, number
