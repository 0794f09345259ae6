-- Read the people who asked for runs, and for the runs that these repeat. ?1 is JSON: [[tenant, run id], ...].
select d.tenant, d.run_id, d.created_by, d.asked_before
from json_each(?1) w
cross join run_details d on d.tenant = w.value ->> 0 and d.run_id = w.value ->> 1
