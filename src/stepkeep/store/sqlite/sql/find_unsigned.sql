-- Find finished runs after an id that a key has not signed, in the order of their ids.
select r.id, r.seq, r.head
from runs r
where r.tenant = ?1 and r.id > ?3 and r.ended_at is not null
    and not exists (select 1 from signed_heads s where s.tenant = r.tenant and s.run_id = r.id and s.key_id = ?2)
order by r.id
limit ?4
