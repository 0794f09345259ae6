-- Read entries of the chain over the audit log of a tenant, in its order.
select tenant, id, at, actor, key, vouched_by, operation, target, outcome, code, request_id, address, seq,
    hash
from audit
where tenant = $1 and seq > $2
order by seq
limit $3
