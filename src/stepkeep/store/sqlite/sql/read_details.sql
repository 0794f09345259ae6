-- Read the details of runs. ?1 is JSON: [[tenant, run id], ...].
select d.tenant, d.run_id, d.workflow, d.version, d.dialect, d.input, d.correlation_id, d.created_at,
       d.created_by, d.business_key, d.rerun_of, d.labels, d.asked_before, d.policy_revision
from json_each(?1) w
cross join run_details d on d.tenant = w.value ->> 0 and d.run_id = w.value ->> 1
