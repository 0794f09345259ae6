-- Record a backfill, or its progress.
insert into backfills (
    tenant, id, trigger_name, state, since_at, until_at, cursor_at, at_once, started, skipped, refused, created_at,
    created_by, ended_at
)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
on conflict (tenant, id) do update
set state = excluded.state, cursor_at = excluded.cursor_at, started = excluded.started, skipped = excluded.skipped,
    refused = excluded.refused, ended_at = excluded.ended_at
