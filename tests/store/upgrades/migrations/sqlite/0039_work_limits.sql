-- The queues and handlers that a key with the scope work is limited to.

alter table api_keys add column queues text check (json_valid(queues));
alter table api_keys add column handlers text check (json_valid(handlers));

create trigger key_keeps_its_limits before update on api_keys
when old.queues is not new.queues or old.handlers is not new.handlers
begin
    select raise(abort, 'a key keeps the queues and handlers that it is limited to: make another one');
end;
