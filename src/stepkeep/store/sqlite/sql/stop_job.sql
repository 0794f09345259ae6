-- End a job early.
update jobs
set state = 'stopped', seq = seq + 1, ended_at = ?3
where tenant = ?1 and id = ?2 and state = 'running'
returning id
