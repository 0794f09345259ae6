-- Resources that steps hold while a worker holds them: exclusive, shared, or units of a pool.

create table resource_holds (
    tenant text not null,
    run_id text not null,
    no integer not null,
    fence integer not null check (fence > 0),
    resource text not null,
    step text not null,
    mode text not null check (mode in ('exclusive', 'shared', 'units')),
    units integer not null check ((units > 0) = (mode = 'units') and units >= 0),
    held_at integer not null,
    primary key (tenant, resource, run_id, no)
) strict;

create unique index resource_is_exclusive on resource_holds (tenant, resource) where mode = 'exclusive';
create index resource_holds_of_run on resource_holds (tenant, run_id);

-- The steps that are claimed together with their resources: their time is beyond every clock.
create index steps_await_resources on steps (queue, priority desc, ready_at, run_id, no)
    where ready_at >= 100000000000000000 and ready_at < 200000000000000000;
