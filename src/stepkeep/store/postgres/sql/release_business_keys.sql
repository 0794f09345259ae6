-- Delete business keys.
delete from business_keys
using unnest($1::text::text[], $2::text[]) as given (tenant, key)
where business_keys.tenant = given.tenant and business_keys.key = given.key
