-- Delete keys of limits that were not used for a while and have nothing to tell. Returns one row for each.
delete from limit_keys
where (tenant, name, key) in (
    select k.tenant, k.name, k.key
    from limit_keys k
    where k.held = 0 and k.used_at < (select stepkeep_now() + $1::bigint) - $2::bigint
        and k.tat < (select stepkeep_now() + $1::bigint)
        and not exists (
            select 1 from limit_lines l where l.tenant = k.tenant and l.name = k.name and l.key = k.key)
    limit $3::int)
    and held = 0
returning name
