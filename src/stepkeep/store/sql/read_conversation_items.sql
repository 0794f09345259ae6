-- Read items of a conversation between two keys, in order, after a place.
select tenant, conversation, key, ordinal, at, value
from conversation_items
where tenant = $1 and conversation = $2 and key >= $3 and key < $4 and (key, ordinal) > ($5, $6)
order by key, ordinal
limit $7
