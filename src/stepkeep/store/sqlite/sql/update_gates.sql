-- Change the level and the deadline of open gates, or close them.
update gates
set level = ?5, due_at = ?6, closed_at = ?7, outcome = ?8
where tenant = ?1 and run_id = ?2 and no = ?3 and activation = ?4
