-- Resources that steps hold while a worker holds them: exclusive, shared, or units of a pool.

create table resource_holds (
    tenant text collate "C" not null,
    run_id uuid not null,
    no integer not null,
    fence integer not null check (fence > 0),
    resource text collate "C" not null,
    step text not null,
    mode text not null check (mode in ('exclusive', 'shared', 'units')),
    units bigint not null check ((units > 0) = (mode = 'units') and units >= 0),
    held_at bigint not null,
    primary key (tenant, resource, run_id, no)
);

create unique index resource_is_exclusive on resource_holds (tenant, resource) where mode = 'exclusive';
create index resource_holds_of_run on resource_holds (tenant, run_id);

-- The steps that are claimed together with their resources: their time is beyond every clock.
create index steps_await_resources on steps (queue, priority desc, ready_at, run_id, no)
    where ready_at >= 100000000000000000 and ready_at < 200000000000000000;

comment on table resource_holds is 'Resources that steps hold; a row counts while its step is held under the same fence';
comment on column resource_holds.tenant is 'Whose step it is';
comment on column resource_holds.run_id is 'The run of the step';
comment on column resource_holds.no is 'The number of the step';
comment on column resource_holds.fence is 'The fence of the claim: the row is void once the step is held under another, or not held';
comment on column resource_holds.resource is 'The name of the resource';
comment on column resource_holds.step is 'The name of the step';
comment on column resource_holds.mode is 'exclusive, shared, or units of a pool';
comment on column resource_holds.units is 'How many units of a pool; 0 in the other modes';
comment on column resource_holds.held_at is 'When the step was claimed (microseconds since 1970)';
