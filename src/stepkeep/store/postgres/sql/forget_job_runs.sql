-- Delete the runs of the oldest jobs of a tenant that ended before a moment.
delete from job_runs
using (
    select tenant, id from jobs where tenant = $1 and state <> 'running' and ended_at < $2 order by id limit $3
) as old
where job_runs.tenant = old.tenant and job_runs.job_id = old.id
returning 1
