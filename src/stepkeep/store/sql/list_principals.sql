-- List the principals of a tenant, by name.
select tenant, name, kind, display, folded, created_at, created_by, disabled_at, disabled_by
from principals
where tenant = $1 and name > $2
order by name
limit $3
