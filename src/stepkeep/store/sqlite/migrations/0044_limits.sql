-- Limits of steps by key: the keys, the places of claims, and the steps that wait for one, by key and queue.
create table limit_keys (
    tenant text not null,
    name text not null,
    key text not null,
    seq integer not null,
    held integer not null check (held >= 0),
    tat integer not null,
    freed text not null,
    used_at integer not null,
    primary key (tenant, name, key)
) strict, without rowid;

create table limit_holds (
    tenant text not null,
    run_id text not null,
    no integer not null,
    fence integer not null check (fence > 0),
    name text not null,
    key text not null,
    seq integer not null,
    weight integer not null check (weight > 0),
    step text not null,
    held_at integer not null,
    primary key (tenant, run_id, no, name)
) strict;

create unique index limit_holds_of_key on limit_holds (tenant, name, key, seq);

create table limit_waits (
    tenant text not null,
    run_id text not null,
    no integer not null,
    name text not null,
    key text not null,
    queue integer not null,
    priority integer not null,
    asked_at integer not null,
    primary key (tenant, run_id, no)
) strict;

create index limit_waits_of_line on limit_waits (tenant, name, key, queue, priority desc, asked_at, run_id, no);

create table limit_lines (
    tenant text not null,
    name text not null,
    key text not null,
    queue integer not null,
    due_at integer,
    primary key (tenant, name, key, queue)
) strict;

create index limit_lines_due on limit_lines (queue, due_at) where due_at is not null;

-- Steps of paused runs, steps that are set aside and steps that wait in lines have a time beyond every clock. However
-- many there are, a claim of other steps does not walk over them.
drop index steps_claim;
create index steps_claim on steps (queue, priority desc, ready_at, run_id, no) where ready_at < 100000000000000000;
