-- Find conversations that were not changed since a moment, the oldest first.
select name
from conversations
where tenant = $1 and changed_at < $2
order by changed_at, name
limit $3
