-- List the runs of a job after an id, with what became of them.
select tenant, job_id, run_id::text, state, detail, new_run_id
from job_runs
where tenant = $1 and job_id = $2 and run_id > $3::uuid
order by job_runs.run_id
limit $4
