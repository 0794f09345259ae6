-- The live policies of tenants, in numbered revisions. The newest one counts.

create table policies (
    tenant text collate "C" not null,
    revision integer not null check (revision > 0),
    name text not null,
    digest text not null,
    document bytea not null,
    published_at bigint not null,
    published_by text not null,
    primary key (tenant, revision)
);

create trigger policy_never_changes after update on policies for each row
    execute function stepkeep_refuse('a policy is only ever added: publish another revision');

create trigger policy_stays after delete on policies for each row
    execute function stepkeep_refuse('a policy is never deleted: verdicts on record refer to it');

comment on table policies is 'Live policies of tenants: rules that allow, hold or deny steps; the newest revision counts';
comment on column policies.tenant is 'Whose row this is; part of every key';
comment on column policies.revision is 'The number of the revision: 1 for the first one';
comment on column policies.name is 'The name of the policy';
comment on column policies.digest is 'The SHA-256 of the document, in hexadecimal';
comment on column policies.document is 'The rules as canonical JSON';
comment on column policies.published_at is 'When it was published (microseconds since 1970)';
comment on column policies.published_by is 'The actor';
