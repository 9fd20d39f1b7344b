-- Refuses a schedule that is none, where it is written: a check constraint would parse it anew with
-- every change of the row, about eight times an image.
create or replace function fn_devices_cron_valid() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if public.fn_cron_problem(new.wake_schedule_cron) is not null then
    raise exception 'new row for relation "devices" violates check constraint "devices_cron_valid": %',
      public.fn_cron_problem(new.wake_schedule_cron)
      using errcode = 'check_violation', constraint = 'devices_cron_valid', table = 'devices';
  end if;
  return new;
end $$;
revoke execute on function fn_devices_cron_valid() from public;
