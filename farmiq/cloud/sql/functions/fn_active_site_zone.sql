-- The time zone of a site whose days may be opened; raises for any other.
create or replace function fn_active_site_zone(site_id uuid) returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  found record;
begin
  select s.timezone, s.is_active, p.is_active as program_is_active into found
  from public.sites s join public.pilot_programs p on p.program_id = s.program_id
  where s.site_id = fn_active_site_zone.site_id;
  if found is null then
    raise exception 'there is no site %', coalesce(fn_active_site_zone.site_id::text, 'null')
      using errcode = 'no_data_found';
  elsif not (found.is_active and found.program_is_active) then
    raise exception 'no day of site % is opened: its % is not active', fn_active_site_zone.site_id,
      case when found.is_active then 'program' else 'site' end
      using errcode = 'object_not_in_prerequisite_state',
        hint = 'Activate it first, if its cameras are to be expected again.';
  end if;
  return found.timezone;
end $$;
revoke execute on function fn_active_site_zone(uuid) from public;
grant execute on function fn_active_site_zone(uuid) to farmiq_jobs;
