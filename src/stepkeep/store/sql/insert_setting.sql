-- Insert a revision of a setting unless it exists.
insert into settings (tenant, kind, name, revision, document, saved_at, saved_by)
values ($1, $2, $3, $4, $5, stepkeep_now() + $6::bigint, $7)
on conflict (tenant, kind, name, revision) do nothing
returning tenant, kind, name, revision, document, saved_at, saved_by
