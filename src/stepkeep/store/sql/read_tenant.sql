-- Read the settings of a tenant.
select name, vouching, created_at, created_by
from tenants
where name = $1
