-- The edge is one operator's machine: one login for its services, which owns nothing.
do $$
begin
  if not exists (select from pg_roles where rolname = 'farmiq_edge') then
    create role farmiq_edge nologin;
  end if;
end $$;
grant usage on schema public to farmiq_edge;
