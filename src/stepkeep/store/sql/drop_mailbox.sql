-- Drop messages that are kept for a business key, perhaps only one ($3): their ids stay until they are forgotten.
update mailbox
set payload = null, expires_at = least(expires_at, stepkeep_now() + $4::bigint)
where tenant = $1 and key = $2 and ($3::text is null or id = $3) and payload is not null
returning id
