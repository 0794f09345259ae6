-- List the sinks of a tenant.
select tenant, name, kind, takes, prefix, patterns, options, created_at, created_by
from sinks
where tenant = $1
order by name
