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

-- What the clock said when it was last believed: one that is far from it after a start is not.
create table believed_clock (
  only_row boolean not null default true
    constraint believed_clock_pkey primary key
    constraint believed_clock_only_row check (only_row),
  believed_at timestamptz not null
);

alter table believed_clock enable row level security;
alter table believed_clock force row level security;
create policy believed_clock_service on believed_clock for all to farmiq_service
  using (true) with check (true);
grant select, insert, update on believed_clock to farmiq_service;
