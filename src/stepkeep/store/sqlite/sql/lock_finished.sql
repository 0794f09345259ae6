-- Find those of the given runs that are finished; the transaction itself is the lock. ?2 is JSON: [run id, ...].
select id
from runs
where tenant = ?1 and id in (select value from json_each(?2)) and ended_at is not null
    and not exists (
        select 1 from quarantine q where q.tenant = runs.tenant and q.run_id = runs.id and q.released_at is null)
