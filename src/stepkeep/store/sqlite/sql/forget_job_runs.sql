-- Delete the runs of the oldest jobs of a tenant that ended before a moment.
delete from job_runs
where tenant = ?1 and job_id in (
    select id from jobs where tenant = ?1 and state <> 'running' and ended_at < ?2 order by id limit ?3
)
returning 1
