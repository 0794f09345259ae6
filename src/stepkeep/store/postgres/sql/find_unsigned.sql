-- Find finished runs after an id that a key has not signed, in the order of their ids.
select runs.id::text, runs.seq, runs.head
from runs
where runs.tenant = $1 and runs.id > $3::uuid and runs.ended_at is not null
    and not exists (
        select 1 from signed_heads
        where signed_heads.tenant = runs.tenant and signed_heads.run_id = runs.id and signed_heads.key_id = $2
    )
order by runs.id
limit $4
