-- Read one conversation.
select tenant, name, items, size_bytes, changed_at
from conversations
where tenant = $1 and name = $2
