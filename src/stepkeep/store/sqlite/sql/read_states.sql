-- Read the states of runs, with the definition, the error and the last journal entry of each. ?1 is JSON: [[tenant, run id], ...].
select r.tenant, r.id, r.state, r.definition_id, r.error, r.seq
from json_each(?1) w
cross join runs r on r.tenant = w.value ->> 0 and r.id = w.value ->> 1
