-- List the workers of a tenant, also those that were shut down.
select tenant, id, no, state, incarnation, capacity, capabilities, queues, heard_at, started_at, seq, head, owner
from workers
where tenant = $1
order by no
