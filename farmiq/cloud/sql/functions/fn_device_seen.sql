-- A camera was heard now, with readings of an image that it took at that time. Readings count if no
-- newer image is known: one that waited in the camera says nothing about today's battery. Whoever
-- changes the camera's settings right now holds its row and may wait for the session of this wake:
-- then this is left out, the wake has the readings. A row that would not change is not written: the
-- gateway has noted each camera that it hears before it records its wakes.
create or replace function fn_device_seen(
  device_id uuid, at timestamptz, battery_voltage double precision, wifi_rssi double precision)
returns void
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
  update public.devices d
  set last_seen_at = public.fn_now(),
    battery_voltage = case when n.newest then coalesce(fn_device_seen.battery_voltage,
      d.battery_voltage) else d.battery_voltage end,
    wifi_rssi = case when n.newest then coalesce(fn_device_seen.wifi_rssi, d.wifi_rssi)
      else d.wifi_rssi end
  from (
    select not exists (
      select from public.device_wake_payloads p
      where p.device_id = fn_device_seen.device_id and p.captured_at > fn_device_seen.at
        and not p.clock_suspect) as newest) n
  where d.device_id = (
    select f.device_id from public.devices f where f.device_id = fn_device_seen.device_id
    for no key update skip locked)
    and (d.last_seen_at is distinct from public.fn_now()
      or (n.newest and (d.battery_voltage, d.wifi_rssi) is distinct from (
        coalesce(fn_device_seen.battery_voltage, d.battery_voltage),
        coalesce(fn_device_seen.wifi_rssi, d.wifi_rssi))))
$$;
grant create on schema public to farmiq_jobs;
alter function fn_device_seen(uuid, timestamptz, double precision, double precision) owner to farmiq_jobs;
revoke create on schema public from farmiq_jobs;
revoke execute on function fn_device_seen(uuid, timestamptz, double precision, double precision) from public;
