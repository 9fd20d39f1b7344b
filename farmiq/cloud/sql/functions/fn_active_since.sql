-- Notes when a site or a program becomes active again.
create or replace function fn_active_since() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if new.is_active and not old.is_active then
    new.active_since := public.fn_now();
  end if;
  return new;
end $$;
revoke execute on function fn_active_since() from public;
