-- Read what was adopted from runs. ?1 is JSON: [[tenant, run id], ...].
select a.tenant, a.run_id, a.no, a.source_run, a.source_step, a.owned
from json_each(?1) w
cross join adoptions a on a.tenant = w.value ->> 0 and a.source_run = w.value ->> 1
