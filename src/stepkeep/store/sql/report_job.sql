-- Go on with a job, or end it, as the worker that holds it. $5 is the rest of the lease.
update jobs
set lease_until = stepkeep_now() + $4::bigint + $5::bigint, state = $6,
    ended_at = case when $6 = 'running' then null else stepkeep_now() + $4::bigint end
where tenant = $1 and id = $2 and seq = $3 and state = 'running'
returning id
