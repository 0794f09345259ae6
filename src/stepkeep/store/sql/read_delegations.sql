-- Read every delegation by a person and to a person.
select tenant, id, delegator, delegate, granted_at, granted_by, reason, valid_from, valid_to, revoked_at, revoked_by
from delegations
where tenant = $1 and (delegator = $2 or delegate = $2)
order by granted_at, id
