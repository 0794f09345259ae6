-- Save keys of limits whose rows are locked. $1 is JSON: [[tenant, name, key, seq, held, tat], ...].
update limit_keys
set seq = (given.value->>3)::bigint, held = (given.value->>4)::bigint, tat = (given.value->>5)::bigint, freed = '[]'
from json_array_elements($1::text::json) as given
where limit_keys.tenant = given.value->>0 and limit_keys.name = given.value->>1 and limit_keys.key = given.value->>2
