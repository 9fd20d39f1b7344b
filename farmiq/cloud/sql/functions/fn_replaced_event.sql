-- The event that an event of this payload corrects; null for none, and for what is no event's id.
create or replace function fn_replaced_event(payload jsonb) returns uuid
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select case when payload ->> 'replaces' ~* '^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$'
    then (payload ->> 'replaces')::uuid end
$$;
revoke execute on function fn_replaced_event(jsonb) from public;
grant execute on function fn_replaced_event(jsonb) to authenticated, farmiq_service, farmiq_jobs;
