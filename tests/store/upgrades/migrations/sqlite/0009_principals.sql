-- People: tenants, principals, roles and groups with their dates, delegations, API keys, and the record of changes.
--
-- A row is added, and ended at most once. Every change has an entry in `people_journal`, added by one writer at a time.

create table tenants (
    name       text not null primary key,
    vouching   text not null,
    created_at integer not null,
    created_by text not null,
    constraint tenant_vouching check (vouching in ('allowed', 'refused'))
) strict, without rowid;

create table principals (
    tenant      text not null,
    name        text not null,
    kind        text not null,
    display     text not null,
    folded      text not null,
    created_at  integer not null,
    created_by  text not null,
    disabled_at integer,
    disabled_by text,
    primary key (tenant, name),
    unique (tenant, folded),
    constraint principal_kind check (kind in ('user', 'service')),
    constraint principal_end check ((disabled_at is null) = (disabled_by is null))
) strict, without rowid;

create table memberships (
    tenant       text not null,
    id           text not null,
    subject      text not null,
    subject_kind text not null,
    kind         text not null,
    name         text not null,
    granted_at   integer not null,
    granted_by   text not null,
    valid_from   integer,
    valid_to     integer,
    revoked_at   integer,
    revoked_by   text,
    primary key (tenant, id),
    constraint membership_subject_kind check (subject_kind in ('person', 'group')),
    constraint membership_kind check (kind in ('role', 'group')),
    constraint membership_depth check (subject_kind = 'person' or kind = 'role'),
    constraint membership_end check ((revoked_at is null) = (revoked_by is null))
) strict, without rowid;

create index memberships_subject on memberships (tenant, subject_kind, subject);
create index memberships_name on memberships (tenant, kind, name);

create table delegations (
    tenant     text not null,
    id         text not null,
    delegator  text not null,
    delegate   text not null,
    granted_at integer not null,
    granted_by text not null,
    reason     text not null,
    valid_from integer,
    valid_to   integer,
    revoked_at integer,
    revoked_by text,
    primary key (tenant, id),
    constraint delegation_to_another check (delegator <> delegate),
    constraint delegation_end check ((revoked_at is null) = (revoked_by is null))
) strict, without rowid;

create index delegations_delegate on delegations (tenant, delegate);

create table api_keys (
    tenant      text not null,
    id          text not null unique,
    owner       text not null,
    secret_hash text not null check (length(secret_hash) = 64),
    scopes      text not null check (json_valid(scopes)),
    created_at  integer not null,
    created_by  text not null,
    expires_at  integer,
    revoked_at  integer,
    revoked_by  text,
    replaces    text,
    primary key (tenant, id),
    constraint key_end check ((revoked_at is null) = (revoked_by is null))
) strict, without rowid;

create table people_journal (
    tenant  text not null,
    seq     integer not null check (seq > 0),
    at      integer not null,
    subject text not null,
    body    blob not null,
    hash    blob not null check (length(hash) = 32),
    primary key (tenant, seq)
) strict;

create index people_journal_subject on people_journal (tenant, subject, seq);

alter table workers add column owner text;

-- Ended is final, and what was granted stays as it was granted.

create trigger ended_membership_never_changes before update on memberships
when old.revoked_at is not null
    or (old.subject, old.subject_kind, old.kind, old.name, old.granted_at, old.granted_by)
        <> (new.subject, new.subject_kind, new.kind, new.name, new.granted_at, new.granted_by)
    or old.valid_from is not new.valid_from or old.valid_to is not new.valid_to
begin
    select raise(abort, 'a membership is only ever added, and revoked once');
end;

create trigger ended_delegation_never_changes before update on delegations
when old.revoked_at is not null
    or (old.delegator, old.delegate, old.granted_at, old.granted_by, old.reason)
        <> (new.delegator, new.delegate, new.granted_at, new.granted_by, new.reason)
    or old.valid_from is not new.valid_from or old.valid_to is not new.valid_to
begin
    select raise(abort, 'a delegation is only ever added, and revoked once');
end;

create trigger revoked_key_never_changes before update on api_keys
when old.revoked_at is not null
    or (old.owner, old.secret_hash, old.scopes, old.created_at, old.created_by)
        <> (new.owner, new.secret_hash, new.scopes, new.created_at, new.created_by)
    or (old.expires_at is not null and (new.expires_at is null or new.expires_at > old.expires_at))
begin
    select raise(abort, 'a key keeps its owner, secret and scopes, never gets a later end, and is revoked once');
end;

create trigger membership_stays before delete on memberships
begin
    select raise(abort, 'a membership is revoked, never deleted');
end;

create trigger delegation_stays before delete on delegations
begin
    select raise(abort, 'a delegation is revoked, never deleted');
end;

create trigger people_journal_never_changes before update on people_journal
begin
    select raise(abort, 'the journal of people is only ever added to');
end;

create trigger people_journal_stays before delete on people_journal
begin
    select raise(abort, 'the journal of people is never deleted');
end;
