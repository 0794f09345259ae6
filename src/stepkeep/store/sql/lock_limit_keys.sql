-- Lock keys of limits and read them; those that are new are numbered from now on. $1 is JSON: [[tenant, name, key], ...].
insert into limit_keys (tenant, name, key, seq, held, tat, freed, used_at)
select given.value->>0, given.value->>1, given.value->>2, $2::bigint, 0, 0, '[]', $2::bigint
from json_array_elements($1::text::json) as given
where true
on conflict (tenant, name, key) do update set used_at = excluded.used_at
returning tenant, name, key, seq, held, tat, freed, used_at
