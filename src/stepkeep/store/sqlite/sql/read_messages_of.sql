-- Read the inboxes of runs, in the given order. ?2 is JSON: [run id, ...].
select t.tenant, t.run_id, t.id, t.number, t.name, t.payload, t.sender, t.arrived_at, t.consumed_by
from json_each(?2) w
cross join messages t on t.tenant = ?1 and t.run_id = w.value
order by w.key, t.number
