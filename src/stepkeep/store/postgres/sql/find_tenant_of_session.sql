-- Read the tenant of a session by its public id, as a role that sees no other tenant's sessions.
select stepkeep_tenant_of_session($1)
