-- Delete the large payloads of runs that are deleted.
delete from payload_chunks
using unnest($2::text::uuid[]) as gone (run_id)
where payload_chunks.tenant = $1 and payload_chunks.run_id = gone.run_id
