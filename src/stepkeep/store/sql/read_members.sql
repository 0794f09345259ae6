-- Read which persons and groups were ever given a role or a group.
select tenant, id, subject, subject_kind, kind, name, granted_at, granted_by, valid_from, valid_to, revoked_at,
    revoked_by
from memberships
where tenant = $1 and kind = $2 and name = $3
order by granted_at, id
