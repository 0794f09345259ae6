-- Insert a revision of a policy unless it exists.
insert into policies (tenant, revision, name, digest, document, published_at, published_by)
values ($1, $2, $3, $4, $5, stepkeep_now() + $6::bigint, $7)
on conflict (tenant, revision) do nothing
returning tenant, revision, name, digest, document, published_at, published_by
