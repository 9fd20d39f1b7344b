-- The outbox of alerts: one row for each step of an episode, contact and channel; a test message and
-- the mail of a report (reports.message_id) have no episode. Pending until it is sent, failed for good, or dropped because it is over. claimed_until:
-- somebody sends it; if they die, it is sent again after that. The link to acknowledge is not in
-- here: it is made when the message leaves.
create table alert_messages (
  tenant_id text not null constraint alert_messages_tenant_fkey references companies (tenant_id),
  message_id uuid not null,
  episode_id uuid,
  step text not null constraint alert_messages_step_known
    check (step in ('opened', 'worsened', 'escalated', 'acknowledged', 'resolved', 'test',
      'report')),
  contact_id text,
  channel_id text not null,
  address text not null,
  severity text not null,
  subject text not null,
  body text not null,
  content jsonb not null,
  state text not null default 'pending' constraint alert_messages_state_known
    check (state in ('pending', 'sent', 'failed', 'dropped')),
  created_at timestamptz not null,
  send_after timestamptz not null,
  next_attempt_at timestamptz not null,
  claimed_until timestamptz,
  attempts integer not null default 0,
  ended_at timestamptz,
  error text,
  constraint alert_messages_pkey primary key (tenant_id, message_id),
  constraint alert_messages_step_key unique (tenant_id, episode_id, step, contact_id, channel_id),
  constraint alert_messages_episode_fkey foreign key (tenant_id, episode_id)
    references alert_episodes (tenant_id, episode_id) on delete cascade
);
create index alert_messages_pending_idx on alert_messages (next_attempt_at)
  where state = 'pending';
create index alert_messages_created_at_idx on alert_messages
  (tenant_id, created_at desc, message_id desc);
create trigger alert_messages_changed after update on alert_messages
  for each row when (old.state is distinct from new.state) execute function fn_alerts_changed();

alter table alert_messages enable row level security;
alter table alert_messages force row level security;
create policy "Users see in their company" on alert_messages for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy alert_messages_service on alert_messages for all to farmiq_service
  using (true) with check (true);
grant select on alert_messages to authenticated;
grant select, insert, update, delete on alert_messages to farmiq_service;
