-- Add a tenant, or change its settings.
insert into tenants (name, vouching, created_at, created_by)
values ($1, $2, $3, $4)
on conflict (name) do update set vouching = excluded.vouching
