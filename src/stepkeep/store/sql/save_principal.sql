-- Add a principal, or change what may change of it.
insert into principals (tenant, name, kind, display, folded, created_at, created_by, disabled_at, disabled_by)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
on conflict (tenant, name) do update set
    display = excluded.display, disabled_at = excluded.disabled_at, disabled_by = excluded.disabled_by
