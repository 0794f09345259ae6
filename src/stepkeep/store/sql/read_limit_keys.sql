-- Read the keys of a limit that are in use, after one: what is held, and how many steps wait.
select limit_keys.name, limit_keys.key, limit_keys.held, limit_keys.tat,
    (select count(*) from limit_waits w
        where w.tenant = limit_keys.tenant and w.name = limit_keys.name and w.key = limit_keys.key)
from limit_keys
where limit_keys.tenant = $1 and limit_keys.name = $2 and limit_keys.key > $3
    and (limit_keys.held > 0 or exists (
        select 1 from limit_lines l
        where l.tenant = limit_keys.tenant and l.name = limit_keys.name and l.key = limit_keys.key))
order by limit_keys.key
limit $4::int
