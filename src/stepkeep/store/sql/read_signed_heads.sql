-- Read the signatures over the head of a run.
select tenant, run_id::text, key_id, entries, head, public_key, signature, signed_at
from signed_heads
where tenant = $1 and run_id = $2
order by key_id
