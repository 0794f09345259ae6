-- People: tenants, principals, roles and groups with their dates, delegations, API keys, and the record of changes.
--
-- A row is added, and ended at most once. Every change has an entry in `people_journal`, added by one writer at a time.

create table tenants (
    name text collate "C" not null primary key,
    vouching text not null,
    created_at bigint not null,
    created_by text not null,
    constraint tenant_vouching check (vouching in ('allowed', 'refused'))
);

create table principals (
    tenant text collate "C" not null,
    name text collate "C" not null,
    kind text not null,
    display text not null,
    folded text collate "C" not null,
    created_at bigint not null,
    created_by text not null,
    disabled_at bigint,
    disabled_by text,
    primary key (tenant, name),
    unique (tenant, folded),
    constraint principal_kind check (kind in ('user', 'service')),
    constraint principal_end check ((disabled_at is null) = (disabled_by is null))
);

create table memberships (
    tenant text collate "C" not null,
    id text collate "C" not null,
    subject text collate "C" not null,
    subject_kind text not null,
    kind text not null,
    name text collate "C" not null,
    granted_at bigint not null,
    granted_by text not null,
    valid_from bigint,
    valid_to bigint,
    revoked_at bigint,
    revoked_by text,
    primary key (tenant, id),
    constraint membership_subject_kind check (subject_kind in ('person', 'group')),
    constraint membership_kind check (kind in ('role', 'group')),
    constraint membership_depth check (subject_kind = 'person' or kind = 'role'),
    constraint membership_end check ((revoked_at is null) = (revoked_by is null))
);

create index memberships_subject on memberships (tenant, subject_kind, subject);
create index memberships_name on memberships (tenant, kind, name);

create table delegations (
    tenant text collate "C" not null,
    id text collate "C" not null,
    delegator text collate "C" not null,
    delegate text collate "C" not null,
    granted_at bigint not null,
    granted_by text not null,
    reason text not null,
    valid_from bigint,
    valid_to bigint,
    revoked_at bigint,
    revoked_by text,
    primary key (tenant, id),
    constraint delegation_to_another check (delegator <> delegate),
    constraint delegation_end check ((revoked_at is null) = (revoked_by is null))
);

create index delegations_delegate on delegations (tenant, delegate);

create table api_keys (
    tenant text collate "C" not null,
    id text collate "C" not null unique,
    owner text collate "C" not null,
    secret_hash text not null check (length(secret_hash) = 64),
    scopes text not null,
    created_at bigint not null,
    created_by text not null,
    expires_at bigint,
    revoked_at bigint,
    revoked_by text,
    replaces text,
    primary key (tenant, id),
    constraint key_end check ((revoked_at is null) = (revoked_by is null))
);

create table people_journal (
    tenant text collate "C" not null,
    seq bigint not null check (seq > 0),
    at bigint not null,
    subject text collate "C" not null,
    body bytea not null,
    hash bytea not null check (length(hash) = 32),
    primary key (tenant, seq)
);

create index people_journal_subject on people_journal (tenant, subject, seq);

alter table workers add column owner text;

-- Ended is final, and what was granted stays as it was granted.

create trigger ended_membership_never_changes after update on memberships for each row
    when (old.revoked_at is not null
        or (old.subject, old.subject_kind, old.kind, old.name, old.granted_at, old.granted_by)
            <> (new.subject, new.subject_kind, new.kind, new.name, new.granted_at, new.granted_by)
        or old.valid_from is distinct from new.valid_from or old.valid_to is distinct from new.valid_to)
    execute function stepkeep_refuse('a membership is only ever added, and revoked once');

create trigger ended_delegation_never_changes after update on delegations for each row
    when (old.revoked_at is not null
        or (old.delegator, old.delegate, old.granted_at, old.granted_by, old.reason)
            <> (new.delegator, new.delegate, new.granted_at, new.granted_by, new.reason)
        or old.valid_from is distinct from new.valid_from or old.valid_to is distinct from new.valid_to)
    execute function stepkeep_refuse('a delegation is only ever added, and revoked once');

create trigger revoked_key_never_changes after update on api_keys for each row
    when (old.revoked_at is not null
        or (old.owner, old.secret_hash, old.scopes, old.created_at, old.created_by)
            <> (new.owner, new.secret_hash, new.scopes, new.created_at, new.created_by)
        or (old.expires_at is not null and (new.expires_at is null or new.expires_at > old.expires_at)))
    execute function stepkeep_refuse(
        'a key keeps its owner, secret and scopes, never gets a later end, and is revoked once');

create trigger membership_stays after delete on memberships for each row
    execute function stepkeep_refuse('a membership is revoked, never deleted');

create trigger delegation_stays after delete on delegations for each row
    execute function stepkeep_refuse('a delegation is revoked, never deleted');

create trigger people_journal_never_changes after update on people_journal for each row
    execute function stepkeep_refuse('the journal of people is only ever added to');

create trigger people_journal_stays after delete on people_journal for each row
    execute function stepkeep_refuse('the journal of people is never deleted');

comment on table tenants is 'Tenants that have settings of their own; a tenant needs no row to have runs';
comment on column tenants.name is 'The tenant, as in every other table';
comment on column tenants.vouching is 'Whether a program may name a person without a key: allowed or refused';
comment on column tenants.created_at is 'When it was created (microseconds since 1970)';
comment on column tenants.created_by is 'The actor';
comment on table principals is 'Users and services of a tenant';
comment on column principals.tenant is 'Whose row this is; part of every key';
comment on column principals.name is 'The name on record, as in the journal';
comment on column principals.kind is 'user or service';
comment on column principals.display is 'The name to show to people';
comment on column principals.folded is 'The name without case and look-alike letters; unique in the tenant';
comment on column principals.created_at is 'When it was created (microseconds since 1970)';
comment on column principals.created_by is 'The actor';
comment on column principals.disabled_at is 'From when on it may not act; null for one that may';
comment on column principals.disabled_by is 'The actor that disabled it';
comment on table memberships is 'Roles and groups of persons, and roles of groups, with their dates';
comment on column memberships.tenant is 'Whose row this is; part of every key';
comment on column memberships.id is 'The id of the membership';
comment on column memberships.subject is 'The person or the group that has it';
comment on column memberships.subject_kind is 'person or group';
comment on column memberships.kind is 'What it gives: a role or a group';
comment on column memberships.name is 'The name of the role or the group';
comment on column memberships.granted_at is 'When it was granted (microseconds since 1970)';
comment on column memberships.granted_by is 'The actor that granted it';
comment on column memberships.valid_from is 'From when on it counts; null: at once';
comment on column memberships.valid_to is 'Until when it counts; null: until it is revoked';
comment on column memberships.revoked_at is 'When it was revoked';
comment on column memberships.revoked_by is 'The actor that revoked it';
comment on table delegations is 'Rights of one person to decide on behalf of another';
comment on column delegations.tenant is 'Whose row this is; part of every key';
comment on column delegations.id is 'The id of the delegation';
comment on column delegations.delegator is 'The person whose roles count';
comment on column delegations.delegate is 'The person who decides';
comment on column delegations.granted_at is 'When it was granted (microseconds since 1970)';
comment on column delegations.granted_by is 'The actor that granted it';
comment on column delegations.reason is 'Why';
comment on column delegations.valid_from is 'From when on it counts; null: at once';
comment on column delegations.valid_to is 'Until when it counts; null: until it is revoked';
comment on column delegations.revoked_at is 'When it was revoked';
comment on column delegations.revoked_by is 'The actor that revoked it';
comment on table api_keys is 'API keys of principals; of the secret only a hash is kept';
comment on column api_keys.tenant is 'Whose row this is; part of every key';
comment on column api_keys.id is 'The public id of the key';
comment on column api_keys.owner is 'The principal that it authenticates';
comment on column api_keys.secret_hash is 'The SHA-256 of the secret, in hexadecimal';
comment on column api_keys.scopes is 'JSON: what it may be used for';
comment on column api_keys.created_at is 'When it was created (microseconds since 1970)';
comment on column api_keys.created_by is 'The actor';
comment on column api_keys.expires_at is 'From when on it is refused; null: when it is revoked';
comment on column api_keys.revoked_at is 'When it was revoked';
comment on column api_keys.revoked_by is 'The actor that revoked it';
comment on column api_keys.replaces is 'The key that it replaced by a rotation';
comment on table people_journal is 'Record of every change of people, roles, delegations and keys, chained by hashes';
comment on column people_journal.tenant is 'Whose row this is; part of every key';
comment on column people_journal.seq is 'Journal sequence: 1 for the first entry';
comment on column people_journal.at is 'When it was written (microseconds since 1970)';
comment on column people_journal.subject is 'The person, group or tenant that changed';
comment on column people_journal.body is 'The entry as canonical JSON';
comment on column people_journal.hash is 'SHA-256 of the hash before it and of the body';
comment on column workers.owner is 'The owner of the key that the worker was opened with; null without one';
