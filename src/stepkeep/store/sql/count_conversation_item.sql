-- Count an item before it is saved. With $6, one that is there already stays as it is.
update conversations
set items = items + (case when there.known > 0 then 0 else 1 end),
    size_bytes = size_bytes + (case when $6::boolean and there.known > 0 then 0 else $5::bigint - there.known_bytes end)
from (
    select count(*) as known, coalesce(sum(length(value)), 0) as known_bytes
    from conversation_items
    where tenant = $1 and conversation = $2 and key = $3 and ordinal = $4::bigint
) as there
where conversations.tenant = $1 and conversations.name = $2
returning items, size_bytes
