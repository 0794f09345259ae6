-- Read which runs hold these business keys. ?1 is JSON: [[tenant, key], ...].
select k.tenant, k.key, k.run_id
from json_each(?1) w
cross join business_keys k on k.tenant = w.value ->> 0 and k.key = w.value ->> 1
