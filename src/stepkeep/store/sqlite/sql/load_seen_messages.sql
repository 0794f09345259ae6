-- Tell which messages have arrived before, consumed or not. ?1 is JSON: [[tenant, run id, message id], ...].
select m.tenant, m.run_id, m.id
from json_each(?1) w
cross join messages m on m.tenant = w.value ->> 0 and m.run_id = w.value ->> 1 and m.id = w.value ->> 2
