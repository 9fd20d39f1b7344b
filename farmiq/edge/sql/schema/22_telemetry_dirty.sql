-- Which buckets have to be made again: one row per transaction of the gateway, written in it, that
-- names for each series the minutes (since 1970, UTC; within one hour) its readings fell into.
-- Rows are only added and deleted, so nobody waits for anybody and no mark is lost (D-57).
create table telemetry_dirty (
  id bigint generated always as identity constraint telemetry_dirty_pkey primary key,
  marked_at timestamptz not null default now(),
  first_at timestamptz not null,
  tenants text[] not null,
  devices text[] not null,
  metrics text[] not null,
  first_minutes bigint[] not null,
  last_minutes bigint[] not null,
  -- Metrics whose readings were not told to the cloud: their buckets are.
  owed_metrics text[] not null,
  -- The first and the last time of the readings themselves. Null: anywhere in those minutes.
  first_times timestamptz[],
  last_times timestamptz[]
);
grant select, insert, delete on telemetry_dirty to farmiq_edge;
