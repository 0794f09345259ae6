-- Read items of a conversation under these keys, in order, after a place. $3 is JSON: [key, ...].
select tenant, conversation, key, ordinal, at, value
from conversation_items
where tenant = $1 and conversation = $2 and key in (select json_array_elements_text($3::text::json))
    and (key, ordinal) > ($4, $5)
order by key, ordinal
limit $6
