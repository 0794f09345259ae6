-- List the sessions of a key that were not ended.
select tenant, id, owner, key, secret_hash, created_at, expires_at, ended_at
from sessions
where tenant = $1 and key = $2 and ended_at is null
order by id
