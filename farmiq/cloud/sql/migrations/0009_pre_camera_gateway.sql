-- Cameras on the wire: images in chunks, logins, how cameras are, commands, what was refused.
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
-- How cameras prove to the broker that they are themselves; the user is the MAC address. Only the
-- hash of the secret is kept.
create table camera_logins (
  device_id uuid constraint camera_logins_pkey primary key,
  company_id uuid not null,
  secret_bcrypt text not null,
  made_by text not null,
  made_at timestamptz not null,
  revoked_at timestamptz,
  constraint camera_logins_device_fkey foreign key (device_id, company_id)
    references devices (device_id, company_id)
);
create index camera_logins_company_idx on camera_logins (company_id);

alter table camera_logins enable row level security;
alter table camera_logins force row level security;
create policy camera_logins_owner on camera_logins for all to current_user
  using (true) with check (true);
create policy camera_logins_service on camera_logins for all to farmiq_service
  using (true) with check (true);
grant select, insert, update on camera_logins to farmiq_service;
-- What cameras sent and could not be taken, with every reason; one row per topic and content
-- (C-107). Of a camera that nobody registered no company is known: only services see it.
create table camera_quarantine (
  quarantine_id uuid constraint camera_quarantine_pkey primary key,
  company_id uuid,
  device_id uuid,
  mac text,
  topic text not null,
  raw bytea not null,
  raw_size_bytes integer not null,
  message_sha256 bytea not null constraint camera_quarantine_message_key unique,
  kind text not null constraint camera_quarantine_kind_known check (kind in (
    'format', 'unknown', 'unassigned', 'dialect', 'security', 'conflict', 'limits', 'database')),
  reasons text[] not null constraint camera_quarantine_has_reasons
    check (cardinality(reasons) > 0),
  received_count bigint not null default 1,
  first_received_at timestamptz not null,
  last_received_at timestamptz not null,
  constraint camera_quarantine_device_fkey foreign key (device_id, company_id)
    references devices (device_id, company_id)
);
create index camera_quarantine_mac_idx on camera_quarantine (mac, last_received_at desc);
create index camera_quarantine_company_idx
  on camera_quarantine (company_id, last_received_at desc);

alter table camera_quarantine enable row level security;
alter table camera_quarantine force row level security;
create policy "Users see in their company" on camera_quarantine for select to authenticated
  using (company_id = get_active_company_id());
create policy camera_quarantine_owner on camera_quarantine for all to current_user
  using (true) with check (true);
create policy camera_quarantine_service on camera_quarantine for all to farmiq_service
  using (true) with check (true);
grant select on camera_quarantine to authenticated;
grant select, insert, update, delete on camera_quarantine to farmiq_service;
-- How cameras are: heard when, and since when they miss the wakes expected of them. A camera that
-- sleeps between its wakes is well. spelling is the MAC address as its topics have it.
create table camera_states (
  device_id uuid constraint camera_states_pkey primary key,
  company_id uuid not null,
  state text not null default 'online' constraint camera_states_state_known
    check (state in ('online', 'late', 'silent')),
  since timestamptz not null,
  missed_wakes integer not null default 0,
  heard_at timestamptz,
  hello_at timestamptz,
  spelling text,
  constraint camera_states_device_fkey foreign key (device_id, company_id)
    references devices (device_id, company_id)
);
create index camera_states_company_idx on camera_states (company_id, state);

alter table camera_states enable row level security;
alter table camera_states force row level security;
create policy "Users see in their company" on camera_states for select to authenticated
  using (company_id = get_active_company_id());
create policy camera_states_owner on camera_states for all to current_user
  using (true) with check (true);
create policy camera_states_service on camera_states for all to farmiq_service
  using (true) with check (true);
grant select on camera_states to authenticated;
grant select, insert, update on camera_states to farmiq_service;
-- Images on their way from cameras, and how their transmission ended. due_at is when something is to
-- be done about one; received has a bit for each chunk that is here. Without image_id and
-- total_chunks chunks came before their announcement. digests are those of a stored image's chunks.
create table camera_transfers (
  transfer_id uuid constraint camera_transfers_pkey primary key,
  company_id uuid not null,
  device_id uuid not null,
  image_id uuid constraint camera_transfers_image_key unique,
  image_name text not null,
  dialect text not null,
  spelling text not null,
  state text not null constraint camera_transfers_state_known
    check (state in ('receiving', 'complete', 'failed')),
  total_chunks integer constraint camera_transfers_chunks_few check (total_chunks between 0 and 4096),
  image_size bigint constraint camera_transfers_image_small
    check (image_size between 0 and 5242880),
  chunk_size integer,
  first_chunk_id integer not null default 0,
  sha256 bytea,
  received bytea not null default '',
  received_count integer not null default 0,
  received_bytes bigint not null default 0,
  rounds integer not null default 0,
  rounds_in_vain integer not null default 0,
  spoiled integer not null default 0,
  opened_at timestamptz not null,
  announced_at timestamptz,
  heard_at timestamptz not null,
  asked_at timestamptz,
  due_at timestamptz,
  ended_at timestamptz,
  acknowledged_at timestamptz,
  acknowledged_count integer not null default 0,
  reason text,
  digests bytea,
  constraint camera_transfers_lineage_key unique (transfer_id, company_id),
  constraint camera_transfers_device_fkey foreign key (device_id, company_id)
    references devices (device_id, company_id),
  constraint camera_transfers_image_fkey foreign key (image_id, device_id, company_id)
    references device_images (image_id, device_id, company_id),
  constraint camera_transfers_announced
    check ((image_id is null) = (total_chunks is null))
);
create index camera_transfers_due_idx on camera_transfers (due_at) where due_at is not null;
create index camera_transfers_device_idx on camera_transfers (device_id, opened_at desc);
create index camera_transfers_company_idx on camera_transfers (company_id, opened_at desc);
create index camera_transfers_ended_idx on camera_transfers (ended_at);

alter table camera_transfers enable row level security;
alter table camera_transfers force row level security;
create policy "Users see in their company" on camera_transfers for select to authenticated
  using (company_id = get_active_company_id());
create policy camera_transfers_owner on camera_transfers for all to current_user
  using (true) with check (true);
create policy camera_transfers_service on camera_transfers for all to farmiq_service
  using (true) with check (true);
create policy camera_transfers_jobs on camera_transfers for select to farmiq_jobs
  using (true);
grant select on camera_transfers to authenticated;
grant select (company_id, image_id, state, heard_at, due_at) on camera_transfers to farmiq_jobs;
grant select, insert, update, delete on camera_transfers to farmiq_service;
-- What only one process may do at a time (C-102). `fence` grows with every new holder: whoever comes
-- back from the dead with an older one has lost it, even under the same name.
create table leases (
  name text constraint leases_pkey primary key,
  holder text not null,
  fence bigint not null default 1,
  taken_at timestamptz not null,
  expires_at timestamptz not null
);

alter table leases enable row level security;
alter table leases force row level security;
create policy leases_owner on leases for all to current_user
  using (true) with check (true);
create policy leases_service on leases for all to farmiq_service
  using (true) with check (true);
grant select, insert, update on leases to farmiq_service;
-- Bytes of images on their way, until the image is stored or given up. chunk_id is as the camera
-- counts.
create table camera_chunks (
  transfer_id uuid not null,
  company_id uuid not null,
  chunk_id integer not null,
  data bytea not null,
  constraint camera_chunks_pkey primary key (transfer_id, chunk_id),
  constraint camera_chunks_transfer_fkey foreign key (transfer_id, company_id)
    references camera_transfers (transfer_id, company_id) on delete cascade
);
-- JPEG does not get smaller: trying to would only cost time.
alter table camera_chunks alter column data set storage external;
create index camera_chunks_company_idx on camera_chunks (company_id);

alter table camera_chunks enable row level security;
alter table camera_chunks force row level security;
create policy camera_chunks_owner on camera_chunks for all to current_user
  using (true) with check (true);
create policy camera_chunks_service on camera_chunks for all to farmiq_service
  using (true) with check (true);
grant select, insert, delete on camera_chunks to farmiq_service;
