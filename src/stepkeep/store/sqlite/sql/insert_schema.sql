-- Insert a schema unless its reference exists.
insert into schemas (tenant, ref, digest, document, published_at, published_by)
values (?, ?, ?, ?, ?, ?)
on conflict (tenant, ref) do nothing
