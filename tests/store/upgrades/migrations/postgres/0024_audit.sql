-- The audit log: what was asked for with keys and through the service, and what was refused.

create table audit (
    tenant text collate "C" not null,
    id text collate "C" not null,
    at bigint not null,
    actor text collate "C" not null,
    key text,
    vouched_by text,
    operation text not null,
    target text collate "C" not null,
    outcome text not null,
    code text,
    request_id text,
    address text,
    primary key (tenant, at, id),
    constraint audit_outcome check (outcome in ('done', 'refused', 'failed'))
);

create index audit_actor on audit (tenant, actor, at, id);
create index audit_target on audit (tenant, target, at, id);
create index people_journal_time on people_journal (tenant, at, seq);

create trigger audit_never_changes after update on audit for each row
    execute function stepkeep_refuse('the audit log is only ever added to');

comment on table audit is 'What was asked for with keys and through the service, and what was refused';
comment on column audit.tenant is 'Whose row this is; part of every key';
comment on column audit.id is 'The id of the entry';
comment on column audit.at is 'When it happened (microseconds since 1970)';
comment on column audit.actor is 'The person or program that asked';
comment on column audit.key is 'The id of the API key; null without one';
comment on column audit.vouched_by is 'The owner of the key, where it named another person';
comment on column audit.operation is 'The operation of the engine';
comment on column audit.target is 'The run, user, key or other thing that it was about; empty if it names none';
comment on column audit.outcome is 'done, refused (not allowed) or failed (not possible)';
comment on column audit.code is 'The rule or the class of error of what was not done';
comment on column audit.request_id is 'The id of the HTTP request';
comment on column audit.address is 'The address of the HTTP client';
