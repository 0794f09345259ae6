-- Read the principal of this name.
select tenant, name, kind, display, folded, created_at, created_by, disabled_at, disabled_by
from principals
where tenant = $1 and name = $2
