-- Add a sink, or replace the one of this name if that is asked for.
insert into sinks (tenant, name, kind, takes, prefix, patterns, options, created_at, created_by)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
on conflict (tenant, name) do update
set kind = excluded.kind, takes = excluded.takes, prefix = excluded.prefix, patterns = excluded.patterns,
    options = excluded.options, created_at = excluded.created_at, created_by = excluded.created_by
where $10
returning name
