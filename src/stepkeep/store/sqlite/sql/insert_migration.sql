-- Record an applied migration.
insert into migrations (version, name, checksum, applied_at) values (?, ?, ?, ?)
