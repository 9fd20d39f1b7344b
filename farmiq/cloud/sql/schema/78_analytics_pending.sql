-- Events that the bus brought to analytics before their own service had stored them: they mark their
-- days when they are stored. Of an hour of telemetry the bucket is looked for.
create table analytics_pending (
  tenant_id text not null,
  event_id uuid not null,
  family text not null constraint analytics_pending_family_known
    check (family in ('weighvision', 'feed', 'barn', 'telemetry', 'inference')),
  farm_id text,
  barn_id text,
  device_id text,
  metric_type text,
  bucket_start_at timestamptz,
  reading_count bigint,
  attempts integer not null default 0,
  next_look_at timestamptz not null default now(),
  received_at timestamptz not null default now(),
  constraint analytics_pending_pkey primary key (tenant_id, event_id)
);
create index analytics_pending_next_look_at_idx on analytics_pending (next_look_at);
create index analytics_pending_received_at_idx on analytics_pending (received_at);

alter table analytics_pending enable row level security;
alter table analytics_pending force row level security;
create policy "Users see in their company" on analytics_pending for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy analytics_pending_service on analytics_pending for all to farmiq_service
  using (true) with check (true);
grant select on analytics_pending to authenticated;
grant select, insert, update, delete on analytics_pending to farmiq_service;
