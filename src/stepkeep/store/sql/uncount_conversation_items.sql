-- Count no longer what is deleted next.
update conversations
set items = items - gone.known, size_bytes = size_bytes - gone.known_bytes
from (
    select count(*) as known, coalesce(sum(length(value)), 0) as known_bytes
    from conversation_items
    where tenant = $1 and conversation = $2 and key >= $3 and key < $4 and ordinal >= $5 and ordinal <= $6
) as gone
where conversations.tenant = $1 and conversations.name = $2
returning items
