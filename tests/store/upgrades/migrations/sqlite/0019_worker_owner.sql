-- A worker keeps its owner: `executed:` of a gate finds the people behind attempts through the number of the worker.

create trigger worker_keeps_its_owner before update of owner on workers
when old.owner is not new.owner
begin
    select raise(abort, 'a worker keeps its owner: register another worker');
end;
