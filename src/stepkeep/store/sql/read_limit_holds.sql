-- Read who has places under a key, the first ones first.
select tenant, run_id::text, no, fence, name, key, seq, weight, step, held_at
from limit_holds
where tenant = $1 and name = $2 and key = $3
order by seq
limit $4::int
