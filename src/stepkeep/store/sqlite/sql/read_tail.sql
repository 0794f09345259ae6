-- Read entries of a tenant in the order in which they were written, after a position.
select tenant, run_id, seq, at, body, hash, place, 0 as overtakes
from journal
where +tenant = ?1 and place > ?2
order by place
limit ?3
