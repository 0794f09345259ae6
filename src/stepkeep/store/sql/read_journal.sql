-- Read a part of a run's journal.
select tenant, run_id::text, seq, at, body, hash
from journal
where tenant = $1 and run_id = $2 and seq > $3
order by seq
limit $4
