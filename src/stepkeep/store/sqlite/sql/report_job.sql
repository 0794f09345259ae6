-- Go on with a job, or end it, as the worker that holds it. ?4 is the time, ?5 the rest of the lease.
update jobs
set lease_until = ?4 + ?5, state = ?6, ended_at = case when ?6 = 'running' then null else ?4 end
where tenant = ?1 and id = ?2 and seq = ?3 and state = 'running'
returning id
