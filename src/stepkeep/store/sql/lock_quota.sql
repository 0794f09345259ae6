-- Lock what a quota is counted for.
insert into quota_scopes (tenant, scope)
values ($1, $2)
on conflict (tenant, scope) do update set scope = excluded.scope
returning scope
