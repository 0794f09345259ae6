-- Record an applied migration.
insert into migrations (version, name, checksum, applied_at) values ($1, $2, $3, stepkeep_now())
