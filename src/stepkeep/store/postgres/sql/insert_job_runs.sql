-- Name the runs that a job is about. $3 is JSON: [run id, ...].
insert into job_runs (tenant, job_id, run_id, state, detail, new_run_id)
select $1, $2, named.value::uuid, 'waiting', null, null
from json_array_elements_text($3::text::json) as named (value)
