-- List the tenants that have settings, by name.
select name, vouching, created_at, created_by
from tenants
where name > $1
order by name
limit $2
