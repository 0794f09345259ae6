-- Streams of runs: what handlers write while they run, in batches, ordered within the run.
create table stream_rows (
    tenant text not null,
    run_id text not null,
    seq integer not null check (seq > 0),
    no integer not null,
    name text not null,
    fence integer not null check (fence > 0),
    start integer not null check (start >= 0),
    count integer not null check (count > 0),
    total integer not null check (total > 0),
    at integer not null,
    after_fence integer,
    after_place integer,
    body text not null check (json_valid(body)),
    primary key (tenant, run_id, seq),
    check (after_fence is null or (start = 0 and after_fence < fence)),
    check ((after_fence is null) = (after_place is null))
) strict;

create unique index stream_rows_place on stream_rows (tenant, run_id, no, name, fence, start);
