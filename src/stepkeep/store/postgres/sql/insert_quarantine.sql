-- Quarantine a run without reading its rows; no row if there is no such run or it is quarantined already.
-- The run is locked first, so that a concurrent transaction on it has ended.
with locked as materialized (
    select tenant, id from runs where runs.tenant = $1 and runs.id = $2::uuid for update
)
insert into quarantine (tenant, run_id, quarantined_at, quarantined_by, reason)
select locked.tenant, locked.id, stepkeep_now() + $3::bigint, $4, $5
from locked
on conflict do nothing
returning tenant, run_id::text, quarantined_at, quarantined_by, reason, released_at, released_by, release_reason
