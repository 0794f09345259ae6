-- Lock a conversation that is there.
update conversations
set changed_at = stepkeep_now() + $3::bigint
where tenant = $1 and name = $2
returning items
