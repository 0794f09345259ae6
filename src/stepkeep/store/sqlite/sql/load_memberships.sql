-- Read what these persons were given, and the roles of their groups. ?1 is JSON: [[tenant, name], ...].
select m.tenant, m.id, m.subject, m.subject_kind, m.kind, m.name, m.granted_at, m.granted_by, m.valid_from,
    m.valid_to, m.revoked_at, m.revoked_by
from json_each(?1) w
cross join memberships m on m.tenant = w.value ->> 0 and m.subject_kind = 'person' and m.subject = w.value ->> 1
union
select g.tenant, g.id, g.subject, g.subject_kind, g.kind, g.name, g.granted_at, g.granted_by, g.valid_from,
    g.valid_to, g.revoked_at, g.revoked_by
from json_each(?1) w
cross join memberships m on m.tenant = w.value ->> 0 and m.subject_kind = 'person' and m.subject = w.value ->> 1
cross join memberships g on g.tenant = m.tenant and g.subject_kind = 'group' and g.subject = m.name
where m.kind = 'group'
order by 7, 2
