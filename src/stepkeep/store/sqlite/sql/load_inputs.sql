-- Read the inputs of runs, with their requesters and labels. ?1 is JSON: [[tenant, run id], ...].
select d.tenant, d.run_id, d.input, d.created_by, d.labels
from json_each(?1) w
cross join run_details d on d.tenant = w.value ->> 0 and d.run_id = w.value ->> 1
