-- Large payloads, outside the rows that refer to them: the value in chunks, under its digest. A reference in `input` or
-- `output` has the digest and the size. Chunks are written with the row that refers to them and deleted with their run.

create table payload_chunks (
    tenant text not null,
    run_id text not null,
    digest text not null check (length(digest) = 64),
    no     integer not null check (no >= 0),
    body   blob not null,
    primary key (tenant, run_id, digest, no)
) strict;
