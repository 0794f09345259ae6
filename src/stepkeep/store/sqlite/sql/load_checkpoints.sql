-- Tell which of these checkpoints are on record, and under which fence. ?1 is JSON: [[tenant, run id, no, name], ...].
select c.tenant, c.run_id, c.no, c.name, c.fence
from json_each(?1) w
cross join checkpoints c
    on c.tenant = w.value ->> 0 and c.run_id = w.value ->> 1 and c.no = w.value ->> 2 and c.name = w.value ->> 3
