-- Delete the cursors of a sink that is removed.
delete from deliveries where tenant = $1 and sink = $2
