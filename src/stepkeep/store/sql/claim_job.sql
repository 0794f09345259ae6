-- Claim a job that no worker carries out. $4 is the length of the lease.
update jobs
set seq = seq + 1, lease_until = stepkeep_now() + $3::bigint + $4::bigint, holder = $5
where tenant = $1 and id = $2 and state = 'running' and lease_until <= stepkeep_now() + $3::bigint
returning tenant, id, action, state, options, created_at, created_by, vouched_by, api_key, idempotency_key, digest, seq,
    lease_until, holder, ended_at, scope
