-- Insert a definition unless its name and version exist.
insert into definitions (tenant, name, version, dialect, digest, document, queues, published_at, published_by)
values ($1, $2, $3, $4, $5, $6, $7, stepkeep_now() + $8::bigint, $9)
on conflict (tenant, name, version) do nothing
