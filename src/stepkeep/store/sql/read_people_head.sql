-- Read the last entry of the journal of people.
select tenant, seq, at, subject, body, hash
from people_journal
where tenant = $1
order by seq desc
limit 1
