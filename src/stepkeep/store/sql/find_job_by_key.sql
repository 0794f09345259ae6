-- Find the job with an idempotency key of a scope, or of any caller.
select tenant, id, action, state, options, created_at, created_by, vouched_by, api_key, idempotency_key, digest, seq,
    lease_until, holder, ended_at, scope
from jobs
where tenant = $1 and idempotency_key = $2 and scope in ('', $3)
order by scope desc
limit 1
