-- A minute that is still filling is added to, and not made from all its readings every time.
alter table telemetry_agg add column last_at timestamptz;
alter table telemetry_dirty
  add column first_times timestamptz[],
  add column last_times timestamptz[];
