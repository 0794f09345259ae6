-- Read the outboxes of runs, in the given order. ?2 is JSON: [run id, ...].
select t.tenant, t.run_id, t.seq, t.number, t.name, t.payload, t.created_at
from json_each(?2) w
cross join outbox t on t.tenant = ?1 and t.run_id = w.value
order by w.key, t.seq, t.number
