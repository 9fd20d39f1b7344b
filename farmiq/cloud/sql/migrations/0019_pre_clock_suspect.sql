-- The edge's word that a device's clock cannot be right, and the station of a weighing.
alter table telemetry_readings add column clock_suspect boolean not null default false;
alter table telemetry_latest add column clock_suspect boolean not null default false;
alter table telemetry_aggregates add column clock_suspect boolean not null default false;
alter table weighvision_events add column clock_suspect boolean not null default false;
alter table media_events add column clock_suspect boolean not null default false;
alter table inference_events add column clock_suspect boolean not null default false;
alter table feed_events add column clock_suspect boolean not null default false;
alter table barn_events add column clock_suspect boolean not null default false;
alter table device_events add column clock_suspect boolean not null default false;
alter table sync_events add column clock_suspect boolean not null default false;
alter table kpi_events add column clock_suspect boolean not null default false;
alter table weight_sessions
  add column station_id text,
  add column clock_suspect boolean not null default false;
