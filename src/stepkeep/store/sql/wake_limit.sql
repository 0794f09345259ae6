-- Look at all lines of a limit at a moment, or before it if they are due before: its rule has changed.
update limit_lines
set due_at = least(coalesce(due_at, stepkeep_now() + $3::bigint), stepkeep_now() + $3::bigint)
where tenant = $1 and name = $2
