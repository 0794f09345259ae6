-- List workers of any tenant without a heartbeat since a given time that are not shut down, longest silence first.
select tenant, id, no, state, incarnation, capacity, capabilities, queues, heard_at, started_at, seq, head, owner
from workers indexed by workers_living
where state <> 'shutdown' and heard_at <= ?1
order by heard_at, no
limit ?2
