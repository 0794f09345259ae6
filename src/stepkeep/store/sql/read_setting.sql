-- Read a revision of a setting, or the newest one where none is given.
select tenant, kind, name, revision, document, saved_at, saved_by
from settings
where tenant = $1 and kind = $2 and name = $3 and revision = coalesce($4, revision)
order by revision desc
limit 1
