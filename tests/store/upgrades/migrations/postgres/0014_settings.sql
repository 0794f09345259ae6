-- Settings of tenants in numbered revisions: allow lists, inbound webhooks. The newest revision of a name counts.

create table settings (
    tenant text collate "C" not null,
    kind text collate "C" not null,
    name text collate "C" not null,
    revision integer not null check (revision > 0),
    document bytea not null,
    saved_at bigint not null,
    saved_by text not null,
    primary key (tenant, kind, name, revision)
);

create trigger setting_never_changes after update on settings for each row
    execute function stepkeep_refuse('a setting is only ever added: save another revision');

create trigger setting_stays after delete on settings for each row
    execute function stepkeep_refuse('a setting is never deleted: its revisions are the record of its changes');

comment on table settings is 'Settings of tenants: allow lists, inbound webhooks; the newest revision of a name counts';
comment on column settings.tenant is 'Whose row this is; part of every key';
comment on column settings.kind is 'What it sets: network or hook';
comment on column settings.name is 'The name among the settings of its kind';
comment on column settings.revision is 'The number of the revision: 1 for the first one';
comment on column settings.document is 'The setting as JSON; null where it was removed';
comment on column settings.saved_at is 'When it was saved (microseconds since 1970)';
comment on column settings.saved_by is 'The actor';
