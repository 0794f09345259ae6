-- Find runs of a job that it has not come to yet, in the order of their ids.
select run_id::text
from job_runs
where tenant = $1 and job_id = $2 and state = 'waiting'
order by job_runs.run_id
limit $3
