-- A worker keeps its owner: `executed:` of a gate finds the people behind attempts through the number of the worker.

create trigger worker_keeps_its_owner after update of owner on workers for each row
    when (old.owner is distinct from new.owner)
    execute function stepkeep_refuse('a worker keeps its owner: register another worker');
