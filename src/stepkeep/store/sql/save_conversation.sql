-- Lock a conversation, and make it if need be.
insert into conversations (tenant, name, items, size_bytes, changed_at)
values ($1, $2, 0, 0, stepkeep_now() + $3::bigint)
on conflict (tenant, name) do update set changed_at = excluded.changed_at
returning items
