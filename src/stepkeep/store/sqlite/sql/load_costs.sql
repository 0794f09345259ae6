-- Read what the ended attempts of runs cost. ?1 is JSON: [[tenant, run id], ...].
select a.tenant, a.run_id, a.cost
from json_each(?1) w
cross join attempts a on a.tenant = w.value ->> 0 and a.run_id = w.value ->> 1
order by a.tenant, a.run_id, a.no, a.fence
