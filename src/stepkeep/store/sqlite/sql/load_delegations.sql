-- Read the delegations to these persons. ?1 is JSON: [[tenant, name], ...].
select d.tenant, d.id, d.delegator, d.delegate, d.granted_at, d.granted_by, d.reason, d.valid_from, d.valid_to,
    d.revoked_at, d.revoked_by
from json_each(?1) w
cross join delegations d on d.tenant = w.value ->> 0 and d.delegate = w.value ->> 1
order by d.granted_at, d.id
