-- Count the cursors of a sink that are not idle.
select count(*) from deliveries where tenant = $1 and sink = $2 and (ready_at is not null or dead_at is not null)
