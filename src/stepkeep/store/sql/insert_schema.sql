-- Insert a schema unless its reference exists.
insert into schemas (tenant, ref, digest, document, published_at, published_by)
values ($1, $2, $3, $4, stepkeep_now() + $5::bigint, $6)
on conflict (tenant, ref) do nothing
