-- Read the journals of runs, in the given order. ?2 is JSON: [run id, ...].
select t.tenant, t.run_id, t.seq, t.at, t.body, t.hash
from json_each(?2) w
cross join journal t on t.tenant = ?1 and t.run_id = w.value
order by w.key, t.seq
