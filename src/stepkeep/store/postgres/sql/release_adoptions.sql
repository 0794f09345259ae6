-- Give away the undo of what runs adopted: retries of these runs take it.
update adoptions set owned = 0
from unnest($1::text::text[], $2::text::uuid[]) as given (tenant, run_id)
where adoptions.tenant = given.tenant and adoptions.run_id = given.run_id and adoptions.owned = 1
