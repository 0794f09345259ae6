-- Record which step consumed a message that was unconsumed before.
update messages
set consumed_by = ?4
where tenant = ?1 and run_id = ?2 and id = ?3 and consumed_by is null
