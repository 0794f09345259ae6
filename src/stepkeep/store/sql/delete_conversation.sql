-- Delete a conversation that was not changed since a moment.
delete from conversations
where tenant = $1 and name = $2 and changed_at < $3
returning name
