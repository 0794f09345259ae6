-- List workers of any tenant without a heartbeat for a given time that are not shut down, longest silence first.
select tenant, id, no, state, incarnation, capacity, capabilities, queues, heard_at, started_at, seq, head, owner
from workers
where state <> 'shutdown' and heard_at <= (select stepkeep_now() + $1::bigint) - $2::bigint
order by heard_at, no
limit $3
