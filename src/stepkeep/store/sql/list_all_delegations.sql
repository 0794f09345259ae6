-- List the delegations of a tenant revoked ones included.
select tenant, id, delegator, delegate, granted_at, granted_by, reason, valid_from, valid_to, revoked_at, revoked_by
from delegations
where tenant = $1
order by granted_at, id
