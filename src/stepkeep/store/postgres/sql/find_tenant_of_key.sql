-- Read the tenant of a key by the key's public id, as a role that sees no other tenant's keys.
select stepkeep_tenant_of_key($1)
