-- Sinks may take transitions of workers: 16 among what they take. The table is written anew, because its check changes.

create table sinks_with_workers (
    tenant text not null,
    name text not null,
    kind text not null,
    takes integer not null check (takes between 1 and 31),
    prefix text not null,
    patterns text not null,
    options blob not null,
    created_at integer not null,
    created_by text not null,
    primary key (tenant, name)
) strict, without rowid;

insert into sinks_with_workers (tenant, name, kind, takes, prefix, patterns, options, created_at, created_by)
select tenant, name, kind, takes, prefix, patterns, options, created_at, created_by from sinks;

drop table sinks;

alter table sinks_with_workers rename to sinks;
