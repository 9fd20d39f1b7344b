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
