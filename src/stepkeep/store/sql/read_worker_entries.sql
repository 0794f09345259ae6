-- Read a part of a worker's journal.
select tenant, worker_id, seq, at, body, hash
from worker_journal
where tenant = $1 and worker_id = $2 and seq > $3
order by seq
limit $4
