-- List the workers of a tenant, all or only those not shut down.
select tenant, id, no, state, incarnation, capacity, capabilities, queues, heard_at, started_at, seq, head
from workers
where tenant = $1 and (not $2 or state <> 'shutdown')
order by no
