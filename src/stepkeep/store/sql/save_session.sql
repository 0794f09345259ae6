-- Add a session, or end it.
insert into sessions (tenant, id, owner, key, secret_hash, created_at, expires_at, ended_at)
values ($1, $2, $3, $4, $5, $6, $7, $8)
on conflict (tenant, id) do update set ended_at = excluded.ended_at
