-- Settings of tenants in numbered revisions: allow lists, inbound webhooks. The newest revision of a name counts.

create table settings (
    tenant   text not null,
    kind     text not null,
    name     text not null,
    revision integer not null check (revision > 0),
    document blob not null,
    saved_at integer not null,
    saved_by text not null,
    primary key (tenant, kind, name, revision)
) strict;

create trigger setting_never_changes before update on settings
begin
    select raise(abort, 'a setting is only ever added: save another revision');
end;

create trigger setting_stays before delete on settings
begin
    select raise(abort, 'a setting is never deleted: its revisions are the record of its changes');
end;
