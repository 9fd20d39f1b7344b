-- What cameras sent and could not be taken, with every reason; one row per topic and content
-- (C-107). Kind limits: it was taken, or not, without what is beyond all bounds. Of a camera that
-- nobody registered no company is known: only services and super admins see it.
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
  redriven_count integer not null default 0,
  last_redriven_at timestamptz,
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
