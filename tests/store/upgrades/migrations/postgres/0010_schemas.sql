-- The registry of JSON Schemas that definitions refer to. A published schema never changes.

create table schemas (
    tenant text collate "C" not null,
    ref text collate "C" not null,
    digest text not null check (length(digest) = 64),
    document bytea not null,
    published_at bigint not null,
    published_by text not null,
    primary key (tenant, ref)
);

create trigger schema_never_changes after update or delete on schemas for each row
    execute function stepkeep_refuse('a published schema never changes; publish it under another reference');

comment on table schemas is 'JSON Schemas that definitions refer to; a published one never changes';
comment on column schemas.tenant is 'Whose row this is; part of every key';
comment on column schemas.ref is 'The reference by which definitions name it';
comment on column schemas.digest is 'SHA-256 of the document';
comment on column schemas.document is 'The schema as canonical JSON';
comment on column schemas.published_at is 'When it was published (microseconds since 1970)';
comment on column schemas.published_by is 'Actor that published it';
