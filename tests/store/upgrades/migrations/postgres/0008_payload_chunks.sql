-- Large payloads, outside the rows that refer to them: the value in chunks, under its digest. A reference in `input` or
-- `output` has the digest and the size. Chunks are written with the row that refers to them and deleted with their run.

create table payload_chunks (
    tenant text collate "C" not null,
    run_id uuid not null,
    digest text collate "C" not null check (length(digest) = 64),
    no integer not null check (no >= 0),
    body bytea not null,
    primary key (run_id, digest, no, tenant)
);

comment on table payload_chunks is 'Large payloads, outside the rows that refer to them by digest';
comment on column payload_chunks.tenant is 'Whose run it is';
comment on column payload_chunks.run_id is 'The run';
comment on column payload_chunks.digest is 'The SHA-256 of the whole payload, in hexadecimal';
comment on column payload_chunks.no is 'The number of the chunk, from 0';
comment on column payload_chunks.body is 'A part of the JSON of the payload';
