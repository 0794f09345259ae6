-- Find those of the given runs that have ended and may go; the transaction itself is the lock. ?2 is JSON: [run id, ...].
select id
from runs
where tenant = ?1 and id in (select value from json_each(?2)) and ended_at is not null
-- part: may_go
