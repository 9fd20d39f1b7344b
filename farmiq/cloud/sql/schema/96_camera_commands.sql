-- What cameras are told to do, sent when they are awake, and what became of it.
create table camera_commands (
  command_id uuid constraint camera_commands_pkey primary key,
  company_id uuid not null,
  device_id uuid not null,
  name text not null constraint camera_commands_name_known
    check (name in ('send_image', 'capture_image', 'next_wake')),
  image_id uuid,
  image_name text,
  wake_at timestamptz,
  state text not null default 'queued' constraint camera_commands_state_known
    check (state in ('queued', 'sent', 'done', 'failed', 'expired')),
  created_by text not null,
  created_at timestamptz not null,
  sent_at timestamptz,
  ended_at timestamptz,
  constraint camera_commands_device_fkey foreign key (device_id, company_id)
    references devices (device_id, company_id),
  constraint camera_commands_image_fkey foreign key (image_id, device_id, company_id)
    references device_images (image_id, device_id, company_id),
  constraint camera_commands_wake_said check ((name = 'next_wake') = (wake_at is not null))
);
create index camera_commands_open_idx on camera_commands (device_id, created_at)
  where state in ('queued', 'sent');
create index camera_commands_company_idx on camera_commands (company_id, created_at desc);
create index camera_commands_image_idx on camera_commands (image_id);
create index camera_commands_in_vain_idx on camera_commands (device_id, sent_at)
  where state = 'expired' and image_id is null;

alter table camera_commands enable row level security;
alter table camera_commands force row level security;
create policy "Users see in their company" on camera_commands for select to authenticated
  using (company_id = get_active_company_id());
create policy camera_commands_owner on camera_commands for all to current_user
  using (true) with check (true);
create policy camera_commands_service on camera_commands for all to farmiq_service
  using (true) with check (true);
grant select on camera_commands to authenticated;
grant select, insert, update, delete on camera_commands to farmiq_service;
