-- End the quarantine of a run, recorded; no row if it is not quarantined.
update quarantine
set released_at = stepkeep_now() + $3::bigint, released_by = $4, release_reason = $5
where tenant = $1 and run_id = $2::uuid and released_at is null
returning tenant, run_id::text, quarantined_at, quarantined_by, reason, released_at, released_by, release_reason
