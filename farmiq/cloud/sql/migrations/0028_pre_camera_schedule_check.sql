-- A camera's schedule is checked where it is written, not with every change of its row.
create trigger devices_cron_valid before insert or update of wake_schedule_cron on devices
  for each row execute function fn_devices_cron_valid();
-- additive: the trigger refuses what the check refused
do $$
begin
  alter table devices drop constraint devices_cron_valid;
end $$;
