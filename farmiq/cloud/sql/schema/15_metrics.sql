-- The metric catalogue: in which unit a metric is shown, and which values are plausible.
-- conversions: unit that a device may send -> [factor, offset], value * factor + offset = canonical.
create table metrics (
  tenant_id text not null,
  metric_type text not null,
  label text not null constraint metrics_label_given check (label <> ''),
  unit text not null,
  decimals smallint not null default 1
    constraint metrics_decimals_few check (decimals between 0 and 6),
  min_plausible double precision,
  max_plausible double precision,
  conversions jsonb not null default '{}'
    constraint metrics_conversions_object check (jsonb_typeof(conversions) = 'object'),
  changed_at timestamptz not null default now(),
  constraint metrics_pkey primary key (tenant_id, metric_type),
  constraint metrics_tenant_fkey foreign key (tenant_id) references companies (tenant_id),
  constraint metrics_plausible_order check (min_plausible <= max_plausible)
);

alter table metrics enable row level security;
alter table metrics force row level security;
create policy "Users see in their company" on metrics for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy metrics_service on metrics for all to farmiq_service
  using (true) with check (true);
grant select on metrics to authenticated;
grant select, insert, update, delete on metrics to farmiq_service;
