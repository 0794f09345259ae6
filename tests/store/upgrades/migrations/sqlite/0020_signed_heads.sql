-- Signatures over the ends of the journals of finished runs, made after the end by a process that has the key.

create table signed_heads (
    tenant     text not null,
    run_id     text not null,
    key_id     text not null,
    entries    integer not null,
    head       blob not null,
    public_key text not null,
    signature  text not null,
    signed_at  integer not null,
    primary key (tenant, run_id, key_id)
) strict, without rowid;

create trigger signed_head_never_changes before update on signed_heads
begin
    select raise(abort, 'a signature is only ever added');
end;
