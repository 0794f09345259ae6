-- Delete the items of a conversation between two keys and two places.
delete from conversation_items
where tenant = $1 and conversation = $2 and key >= $3 and key < $4 and ordinal >= $5 and ordinal <= $6
returning ordinal
