-- Read the principal that has this name, or one that looks the same.
select tenant, name, kind, display, folded, created_at, created_by, disabled_at, disabled_by
from principals
where tenant = ?1 and folded = ?2
