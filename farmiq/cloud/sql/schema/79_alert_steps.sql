-- What people are to be told of an episode, once per step; written with the change that it tells of.
-- routed_at: cloud-notification-service has made the messages of it. route_after: it could not,
-- and tries again then.
create table alert_steps (
  tenant_id text not null,
  episode_id uuid not null,
  step text not null constraint alert_steps_step_known
    check (step in ('opened', 'worsened', 'escalated', 'acknowledged', 'resolved')),
  created_at timestamptz not null default now(),
  routed_at timestamptz,
  route_after timestamptz,
  constraint alert_steps_pkey primary key (tenant_id, episode_id, step),
  constraint alert_steps_episode_fkey foreign key (tenant_id, episode_id)
    references alert_episodes (tenant_id, episode_id) on delete cascade
);
create index alert_steps_pending_idx on alert_steps (created_at) where routed_at is null;

alter table alert_steps enable row level security;
alter table alert_steps force row level security;
create policy "Users see in their company" on alert_steps for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy alert_steps_service on alert_steps for all to farmiq_service
  using (true) with check (true);
grant select on alert_steps to authenticated;
grant select, insert, update on alert_steps to farmiq_service;
