-- Count places of keys as free, and note the numbers of their grants. $1 is JSON: [[tenant, name, key, weight, seqs],
-- ...], ordered, so that the rows are locked in this order.
insert into limit_keys (tenant, name, key, seq, held, tat, freed, used_at)
select value->>0, value->>1, value->>2, 0, (value->>3)::bigint, 0, value->>4, 0
from json_array_elements($1::text::json)
where true
on conflict (tenant, name, key) do update set
    held = limit_keys.held - excluded.held,
    freed = case
        when limit_keys.freed = '[]' then excluded.freed
        else substr(limit_keys.freed, 1, length(limit_keys.freed) - 1) || ',' || substr(excluded.freed, 2)
    end
