-- Cameras that sent more than they may: until `paused_until` the broker does not let them in. Who
-- floods again soon is paused for longer: `pauses` counts those in a row.
alter table camera_logins
  add column paused_until timestamptz,
  add column pauses integer not null default 0;

-- additive: the check lets one more type in and refuses nothing that running code writes
do $$
begin
  alter table device_alerts drop constraint device_alerts_type_known;
  alter table device_alerts add constraint device_alerts_type_known check (alert_type in (
    'missed_wakes', 'high_failure_rate', 'low_battery', 'image_transmission_failed',
    'clock_suspect', 'unassigned_device', 'device_silent', 'counters_differ', 'device_flooding'));
end $$;
