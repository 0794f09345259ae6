-- Streams of runs: what handlers write while they run, in batches, ordered within the run.
create table stream_rows (
    tenant text collate "C" not null,
    run_id uuid not null,
    seq bigint not null check (seq > 0),
    no integer not null,
    name text collate "C" not null,
    fence integer not null check (fence > 0),
    start integer not null check (start >= 0),
    count integer not null check (count > 0),
    total bigint not null check (total > 0),
    at bigint not null,
    after_fence integer,
    after_place integer,
    body text not null,
    primary key (tenant, run_id, seq),
    check (after_fence is null or (start = 0 and after_fence < fence)),
    check ((after_fence is null) = (after_place is null))
);

create unique index stream_rows_place on stream_rows (tenant, run_id, no, name, fence, start);

comment on table stream_rows is 'Chunks of the streams of runs; a row has those of one batch';
comment on column stream_rows.tenant is 'Whose run it is';
comment on column stream_rows.run_id is 'The run';
comment on column stream_rows.seq is 'Order within the run';
comment on column stream_rows.no is 'The number of the step that wrote it';
comment on column stream_rows.name is 'The name of the stream';
comment on column stream_rows.fence is 'The fence of the attempt that wrote it';
comment on column stream_rows.start is 'The place of its first chunk among those of the attempt';
comment on column stream_rows.count is 'How many chunks it has';
comment on column stream_rows.total is 'The bytes of all rows of the run up to this one';
comment on column stream_rows.at is 'When it was written (microseconds since 1970)';
comment on column stream_rows.after_fence is 'Of the first row of an attempt that goes on: the fence of the chunk before it';
comment on column stream_rows.after_place is 'The place of that chunk among those of its attempt';
comment on column stream_rows.body is 'The chunks as a JSON array, or sealed by a codec';
