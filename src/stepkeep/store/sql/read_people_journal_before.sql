-- Read entries of a tenant's journal of people, newest first, before a moment and an entry of that moment.
select tenant, seq, at, subject, body, hash
from people_journal
where tenant = $1 and (at, seq) < ($2, $3) and at >= $4
order by at desc, seq desc
limit $5
