-- Somebody has put a new dish under a camera: its next image is the reference of a new series. Returns
-- whether a series ended. The refusal does not tell whether another company has such a camera.
create or replace function fn_start_dish(device_id uuid) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  person constant uuid := public.fn_acting_person(array['operator', 'technician', 'admin'],
    'only operators, technicians and admins say that there is a new dish');
begin
  if not exists (
    select from public.devices d
    where d.device_id = fn_start_dish.device_id
      and d.company_id = public.get_active_company_id()) then
    raise exception 'your company has no camera %', fn_start_dish.device_id
      using errcode = 'no_data_found';
  end if;
  update public.dish_series s set ended_at = public.fn_now(), ended_by = person
  where s.device_id = fn_start_dish.device_id and s.company_id = public.get_active_company_id()
    and s.ended_at is null;
  return found;
end $$;
grant create on schema public to farmiq_jobs;
alter function fn_start_dish(uuid) owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_start_dish(uuid) from public;
grant execute on function fn_start_dish(uuid) to authenticated;
