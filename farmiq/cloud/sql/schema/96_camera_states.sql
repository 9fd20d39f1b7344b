-- How cameras are: heard when, and since when they miss the wakes expected of them. A camera that
-- sleeps between its wakes is well. spelling is the MAC address as its topics have it.
-- captures_unasked: it takes the picture of its wake without capture_image (C-117); null: not known.
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
  captures_unasked boolean,
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
