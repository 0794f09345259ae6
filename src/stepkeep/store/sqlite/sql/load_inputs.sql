-- Read the inputs of runs, with their requesters, labels and pinned policies. ?1 is JSON: [[tenant, run id], ...].
select d.tenant, d.run_id, d.input, d.created_by, d.labels, d.policy_revision
from json_each(?1) w
cross join run_details d on d.tenant = w.value ->> 0 and d.run_id = w.value ->> 1
