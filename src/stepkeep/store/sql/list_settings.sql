-- List the newest revision of each setting of a kind, by name, after a name.
select s.tenant, s.kind, s.name, s.revision, s.document, s.saved_at, s.saved_by
from settings s
where s.tenant = $1 and s.kind = $2 and s.name > $3
    and s.revision = (select max(n.revision) from settings n where n.tenant = s.tenant and n.kind = s.kind and n.name = s.name)
order by s.name
limit $4
