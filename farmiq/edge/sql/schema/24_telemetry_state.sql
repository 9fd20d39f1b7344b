-- What edge-telemetry-timeseries has to remember. Before raw_from readings may have been dropped, so
-- buckets from before it are never made again; fallback_timezone is the zone that the days of farms
-- without one were made in.
create table telemetry_state (
  only_row boolean not null default true
    constraint telemetry_state_pkey primary key
    constraint telemetry_state_only_row check (only_row),
  raw_from timestamptz not null default '-infinity',
  fallback_timezone text not null default 'UTC'
);
grant select, insert, update on telemetry_state to farmiq_edge;
