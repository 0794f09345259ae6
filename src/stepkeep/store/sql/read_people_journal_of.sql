-- Read the entries about one person, group or tenant, in order.
select tenant, seq, at, subject, body, hash
from people_journal
where tenant = $1 and subject = $4 and seq > $2
order by seq
limit $3
