-- Insert a definition unless its name and version exist.
insert into definitions (tenant, name, version, dialect, digest, document, queues, published_at, published_by)
values (?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict (tenant, name, version) do nothing
