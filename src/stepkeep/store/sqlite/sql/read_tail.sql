-- Read entries of a tenant in the order in which they were written, after a position.
select tenant, run_id, seq, at, body, hash, rowid, 0 as overtakes
from journal
where +tenant = ?1 and rowid > ?2
order by rowid
limit ?3
