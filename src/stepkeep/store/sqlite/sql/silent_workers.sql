-- List workers of any tenant that were not heard since a moment and are not shut down, longest silence first.
select tenant, id, no, state, incarnation, capacity, capabilities, queues, heard_at, started_at, seq, head
from workers indexed by workers_living
where state <> 'shutdown' and heard_at <= ?1
order by heard_at, no
limit ?2
