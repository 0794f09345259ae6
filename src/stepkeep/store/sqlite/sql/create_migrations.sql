-- Create the table of applied migrations.
create table if not exists migrations (
    version    integer primary key,
    name       text not null,
    checksum   text not null,
    applied_at integer not null
) strict
