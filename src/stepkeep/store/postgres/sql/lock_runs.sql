-- Lock the wanted runs one after the other in the given order; then read them, whether each is quarantined, and the
-- clock.
with locked as materialized (
    select wanted.place, run.*
    from unnest($1::text::text[], $2::text::uuid[]) with ordinality as wanted (tenant, run_id, place)
    cross join lateral (
        select definition_id, state, priority, seq, head, open, moving, leased, failed, undoing, inbox,
            cause, policy, category, error, rollback, due_at, started_at, ended_at, business_key, moved_at,
            (runs.tenant, runs.id) in (select tenant, run_id from quarantine where released_at is null)
        from runs
        where runs.tenant = wanted.tenant and runs.id = wanted.run_id
        for update
    ) as run
)
select clock.now, locked.*
from (select stepkeep_now() + $3::bigint as now from locked having count(*) >= 0) as clock
left join locked on true
