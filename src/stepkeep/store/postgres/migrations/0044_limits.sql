-- Limits of steps by key: the keys, the places of claims, and the steps that wait for one, by key and queue.
create table limit_keys (
    tenant text collate "C" not null,
    name text collate "C" not null,
    key text collate "C" not null,
    seq bigint not null,
    held bigint not null check (held >= 0),
    tat bigint not null,
    freed text not null,
    used_at bigint not null,
    primary key (tenant, name, key)
) with (fillfactor = 70);

comment on table limit_keys is 'The keys of limits; the row of a key is the lock of its places';
comment on column limit_keys.tenant is 'Whose limit it is';
comment on column limit_keys.name is 'The name of the limit';
comment on column limit_keys.key is 'The key; empty where a limit has none';
comment on column limit_keys.seq is 'The number of the last grant of the key';
comment on column limit_keys.held is 'What the places of the key weigh together';
comment on column limit_keys.tat is 'When the bucket of its rate is empty again (microseconds since 1970)';
comment on column limit_keys.freed is 'The numbers of grants that ended since the last grant, as JSON';
comment on column limit_keys.used_at is 'When a claim asked for the key last (microseconds since 1970)';

create table limit_holds (
    tenant text collate "C" not null,
    run_id uuid not null,
    no integer not null,
    fence integer not null check (fence > 0),
    name text collate "C" not null,
    key text collate "C" not null,
    seq bigint not null,
    weight integer not null check (weight > 0),
    step text not null,
    held_at bigint not null,
    primary key (tenant, run_id, no, name)
);

create unique index limit_holds_of_key on limit_holds (tenant, name, key, seq);

comment on table limit_holds is 'Places that claims have under limits; the transaction that ends a claim deletes its places';
comment on column limit_holds.tenant is 'Whose step it is';
comment on column limit_holds.run_id is 'The run of the step';
comment on column limit_holds.no is 'The number of the step';
comment on column limit_holds.fence is 'The fence of the claim';
comment on column limit_holds.name is 'The name of the limit';
comment on column limit_holds.key is 'The key';
comment on column limit_holds.seq is 'The number of the grant of the key';
comment on column limit_holds.weight is 'What it counts against the limit';
comment on column limit_holds.step is 'The name of the step';
comment on column limit_holds.held_at is 'When the step was claimed (microseconds since 1970)';

create table limit_waits (
    tenant text collate "C" not null,
    run_id uuid not null,
    no integer not null,
    name text collate "C" not null,
    key text collate "C" not null,
    queue bigint not null,
    priority integer not null,
    asked_at bigint not null,
    primary key (tenant, run_id, no)
);

create index limit_waits_of_line on limit_waits (tenant, name, key, queue, priority desc, asked_at, run_id, no);

comment on table limit_waits is 'Ready steps that are parked under a key that was full';
comment on column limit_waits.tenant is 'Whose step it is';
comment on column limit_waits.run_id is 'The run of the step';
comment on column limit_waits.no is 'The number of the step';
comment on column limit_waits.name is 'The name of the limit';
comment on column limit_waits.key is 'The key';
comment on column limit_waits.queue is 'The queue of the step';
comment on column limit_waits.priority is 'The priority of the step: higher ones are first in line';
comment on column limit_waits.asked_at is 'Since when the step is ready (microseconds since 1970)';

create table limit_lines (
    tenant text collate "C" not null,
    name text collate "C" not null,
    key text collate "C" not null,
    queue bigint not null,
    due_at bigint,
    primary key (tenant, name, key, queue)
);

create index limit_lines_due on limit_lines (queue, due_at) where due_at is not null;

comment on table limit_lines is 'The lines of parked steps, one for each key and queue';
comment on column limit_lines.tenant is 'Whose line it is';
comment on column limit_lines.name is 'The name of the limit';
comment on column limit_lines.key is 'The key';
comment on column limit_lines.queue is 'The queue of the steps';
comment on column limit_lines.due_at is 'From when a claim looks at the line (microseconds since 1970); null: a place must become free first';

-- Steps of paused runs, steps that are set aside and steps that wait in lines have a time beyond every clock. However
-- many there are, a claim of other steps does not walk over them.
drop index steps_claim;
create index steps_claim on steps (queue, priority desc, ready_at, run_id, no) where ready_at < 100000000000000000;
