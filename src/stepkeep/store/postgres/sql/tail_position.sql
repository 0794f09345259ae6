-- Read the position behind all entries that no older transaction may precede.
select pg_snapshot_xmin(pg_current_snapshot())::text::bigint
