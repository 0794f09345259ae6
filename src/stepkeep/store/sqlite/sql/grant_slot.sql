-- Grant a slot to a run that waits for one.
update slots set granted_at = ?3
where tenant = ?1 and run_id = ?2 and granted_at is null
