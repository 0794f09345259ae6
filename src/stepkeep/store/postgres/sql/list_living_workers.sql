-- List the workers of a tenant that are not shut down.
select tenant, id, no, state, incarnation, capacity, capabilities, queues, heard_at, started_at, seq, head, owner
from workers
where tenant = $1 and state <> 'shutdown'
order by no
