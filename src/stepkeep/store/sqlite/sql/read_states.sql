-- Read the states of runs. ?1 is JSON: [[tenant, run id], ...].
select r.tenant, r.id, r.state
from json_each(?1) w
cross join runs r on r.tenant = w.value ->> 0 and r.id = w.value ->> 1
