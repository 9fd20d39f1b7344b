-- Series whose days have to be made again, all of them: their farm got another time zone.
create table telemetry_rezoned (
  tenant_id text not null,
  device_id text not null,
  metric_type text not null,
  constraint telemetry_rezoned_pkey primary key (tenant_id, device_id, metric_type)
);
grant select, insert, delete on telemetry_rezoned to farmiq_edge;
