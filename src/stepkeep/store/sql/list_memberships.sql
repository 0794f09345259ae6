-- List what the people and groups of a tenant were ever given.
select tenant, id, subject, subject_kind, kind, name, granted_at, granted_by, valid_from, valid_to, revoked_at,
    revoked_by
from memberships
where tenant = $1
order by granted_at, id
