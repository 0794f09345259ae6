-- Read a worker by its number.
select tenant, id, no, state, incarnation, capacity, capabilities, queues, heard_at, started_at, seq, head, owner
from workers
where tenant = $1 and no = $2
