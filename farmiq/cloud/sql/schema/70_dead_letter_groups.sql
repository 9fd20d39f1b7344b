-- Dead letters that wait for a person, by company, queue and reason, as the last look at the queue
-- found them. `letters` are the first of them with the beginning of their bytes. is_of_no_company:
-- they name no company of ours, and the one that runs this cloud is told of them. is_whole: the look
-- read the whole queue; if not, there may be more.
create table dead_letter_groups (
  tenant_id text not null,
  queue text not null,
  reason text not null,
  is_of_no_company boolean not null,
  count bigint not null,
  oldest_at timestamptz,
  newest_at timestamptz,
  event_types text[] not null,
  letters jsonb not null,
  is_whole boolean not null,
  looked_at timestamptz not null,
  constraint dead_letter_groups_pkey primary key (tenant_id, queue, reason, is_of_no_company)
);

alter table dead_letter_groups enable row level security;
alter table dead_letter_groups force row level security;
create policy "Users see in their company" on dead_letter_groups for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy dead_letter_groups_service on dead_letter_groups for all to farmiq_service
  using (true) with check (true);
grant select on dead_letter_groups to authenticated;
grant select, insert, delete on dead_letter_groups to farmiq_service;
