-- What the rollups have to remember, as at the edge: before raw_from readings may have been dropped, so
-- buckets from before it are final; fallback_timezone is the zone of days of farms that nobody registered.
create table telemetry_state (
  only_row boolean not null default true
    constraint telemetry_state_pkey primary key
    constraint telemetry_state_only_row check (only_row),
  raw_from timestamptz not null default '-infinity',
  fallback_timezone text not null default 'UTC'
);

alter table telemetry_state enable row level security;
alter table telemetry_state force row level security;
create policy telemetry_state_service on telemetry_state for all to farmiq_service
  using (true) with check (true);
-- A month is dropped by the owner's function, which looks here first; FORCE holds for owners too.
create policy telemetry_state_owner on telemetry_state for select to current_user using (true);
grant select, insert, update on telemetry_state to farmiq_service;
