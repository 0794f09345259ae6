-- Record what became of a run of a job. What is recorded stays.
update job_runs
set state = $4, detail = $5, new_run_id = $6
where tenant = $1 and job_id = $2 and run_id = $3::uuid and state = 'waiting'
