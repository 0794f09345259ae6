-- Delete the oldest jobs of a tenant that ended before a moment and have no runs any more.
delete from jobs
where tenant = ?1 and id in (
    select j.id
    from jobs j
    where j.tenant = ?1 and j.state <> 'running' and j.ended_at < ?2
        and not exists (select 1 from job_runs r where r.tenant = j.tenant and r.job_id = j.id)
    order by j.id
    limit ?3
)
returning 1
