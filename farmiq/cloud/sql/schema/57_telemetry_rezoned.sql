-- Series whose days have to be computed again, all of them: their farm got another time zone.
create table telemetry_rezoned (
  tenant_id text not null,
  device_id text not null,
  metric_type text not null,
  constraint telemetry_rezoned_pkey primary key (tenant_id, device_id, metric_type)
);

alter table telemetry_rezoned enable row level security;
alter table telemetry_rezoned force row level security;
create policy telemetry_rezoned_service on telemetry_rezoned for all to farmiq_service
  using (true) with check (true);
grant select, insert, delete on telemetry_rezoned to farmiq_service;

create trigger farms_rezoned after insert or update of timezone or delete on farms
  for each row execute function fn_farms_rezoned();
