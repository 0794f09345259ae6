-- Read what a person or a group was ever given.
select tenant, id, subject, subject_kind, kind, name, granted_at, granted_by, valid_from, valid_to, revoked_at,
    revoked_by
from memberships
where tenant = $1 and subject_kind = $2 and subject = $3
order by granted_at, id
