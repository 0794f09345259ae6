-- Read a session by its public id.
select tenant, id, owner, key, secret_hash, created_at, expires_at, ended_at
from sessions
where id = $1
