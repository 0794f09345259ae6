-- Read the journal of people, in order.
select tenant, seq, at, subject, body, hash
from people_journal
where tenant = $1 and seq > $2
order by seq
limit $3
