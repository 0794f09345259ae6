-- Read the journal of a worker.
select tenant, worker_id, seq, at, body, hash
from worker_journal
where tenant = $1 and worker_id = $2
order by seq
