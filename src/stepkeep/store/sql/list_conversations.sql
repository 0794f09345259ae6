-- List conversations by name.
select tenant, name, items, size_bytes, changed_at
from conversations
where tenant = $1 and name > $2
order by name
limit $3
