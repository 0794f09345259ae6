-- Record a firing, or what came of it.
insert into firings (
    tenant, trigger_name, moment, due_at, state, watched, made_at, depth, run_id, source, backfill, reason, given
)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
on conflict (tenant, trigger_name, moment) do update
set due_at = excluded.due_at, state = excluded.state, watched = excluded.watched, depth = excluded.depth,
    run_id = excluded.run_id, backfill = excluded.backfill, reason = excluded.reason, given = excluded.given
