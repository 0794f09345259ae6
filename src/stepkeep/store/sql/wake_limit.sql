-- Look at all lines of a limit again from a moment on, and not before: its rule has changed.
update limit_lines set due_at = stepkeep_now() + $3::bigint where tenant = $1 and name = $2
