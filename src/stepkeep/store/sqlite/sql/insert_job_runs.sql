-- Name the runs that a job is about. ?3 is JSON: [run id, ...].
insert into job_runs (tenant, job_id, run_id, state, detail, new_run_id)
select ?1, ?2, value, 'waiting', null, null
from json_each(?3)
