-- Remove a sink.
delete from sinks where tenant = $1 and name = $2 returning name
