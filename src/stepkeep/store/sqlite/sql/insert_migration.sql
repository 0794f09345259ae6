-- Note that a migration was applied.
insert into migrations (version, name, checksum, applied_at) values (?, ?, ?, ?)
