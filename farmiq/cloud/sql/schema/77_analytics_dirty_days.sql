-- Days of batches that have to be computed again. Rows are only added and deleted, so nobody waits
-- for anybody and no mark is lost. Without last_date all days from first_date on; with is_figures
-- the facts are as they were and only figures change (a breed standard did).
create table analytics_dirty_days (
  tenant_id text not null,
  id bigint generated always as identity constraint analytics_dirty_days_pkey primary key,
  batch_id text not null,
  first_date date not null,
  last_date date,
  is_figures boolean not null default false,
  marked_at timestamptz not null default now(),
  due_at timestamptz not null default now()
);
create index analytics_dirty_days_due_idx on analytics_dirty_days (due_at);
create index analytics_dirty_days_batch_idx on analytics_dirty_days (tenant_id, batch_id);

-- Master data mark the days that they touch.
create trigger batches_mark_days after insert or update or delete on batches
  for each row execute function fn_batches_mark_days();
create trigger farms_mark_days after update of timezone on farms
  for each row execute function fn_farms_mark_days();
create trigger breed_standards_mark_days after insert or update or delete on breed_standards
  for each row execute function fn_breed_standards_mark_days();
create trigger metrics_mark_days after insert or update or delete on metrics
  for each row execute function fn_metrics_mark_days();

alter table analytics_dirty_days enable row level security;
alter table analytics_dirty_days force row level security;
create policy "Users see in their company" on analytics_dirty_days for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy analytics_dirty_days_service on analytics_dirty_days for all to farmiq_service
  using (true) with check (true);
grant select on analytics_dirty_days to authenticated;
grant select, insert, delete, update on analytics_dirty_days to farmiq_service;
