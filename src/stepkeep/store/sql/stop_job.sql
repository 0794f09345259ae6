-- End a job early.
update jobs
set state = 'stopped', seq = seq + 1, ended_at = stepkeep_now() + $3::bigint
where tenant = $1 and id = $2 and state = 'running'
returning id
