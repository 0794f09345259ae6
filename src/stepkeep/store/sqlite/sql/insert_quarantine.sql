-- Quarantine a run without reading its rows; no row if there is no such run or it is quarantined already.
insert into quarantine (tenant, run_id, quarantined_at, quarantined_by, reason)
select runs.tenant, runs.id, ?3, ?4, ?5
from runs
where runs.tenant = ?1 and runs.id = ?2
on conflict do nothing
returning tenant, run_id, quarantined_at, quarantined_by, reason, released_at, released_by, release_reason
