-- Insert a revision of a policy unless it exists.
insert into policies (tenant, revision, name, digest, document, published_at, published_by)
values (?, ?, ?, ?, ?, ?, ?)
on conflict (tenant, revision) do nothing
returning tenant, revision, name, digest, document, published_at, published_by
