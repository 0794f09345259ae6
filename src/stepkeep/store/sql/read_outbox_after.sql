-- Read the outbox of a run after an entry.
select tenant, run_id::text, seq, number, name, payload, created_at
from outbox
where tenant = $1 and run_id = $2::uuid and (seq, number) > ($3, $4)
order by seq, number
limit $5
