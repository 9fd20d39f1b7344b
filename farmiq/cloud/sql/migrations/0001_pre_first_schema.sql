-- The first schema of the cloud: companies and people, accepted events, telemetry.

-- How far fn_now() is ahead in a database that its owner uses for tests; elsewhere it is empty.
create table test_clock (
  only_row boolean not null default true
    constraint test_clock_pkey primary key
    constraint test_clock_only_row check (only_row),
  ahead interval not null
);

alter table test_clock enable row level security;
alter table test_clock force row level security;
create policy test_clock_owner on test_clock for all to current_user using (true) with check (true);
create policy test_clock_read on test_clock for select using (true);
grant select on test_clock to public;

-- A company of the console is a tenant of the bus: tenant_id links the two (C-52).
create table companies (
  company_id uuid constraint companies_pkey primary key,
  tenant_id text not null constraint companies_tenant_id_key unique
    constraint companies_tenant_id_said check (tenant_id <> ''),
  name text not null,
  timezone text not null default 'UTC',
  created_at timestamptz not null default now()
);
create trigger companies_tenant_id before insert on companies
  for each row execute function fn_companies_tenant_id();

alter table companies enable row level security;
alter table companies force row level security;
create policy "Users see in their company" on companies for select to authenticated
  using (company_id = get_active_company_id());
-- Whoever owns the database adds companies; FORCE holds for owners too.
create policy companies_owner on companies for all to current_user using (true) with check (true);
create policy companies_service on companies for select to farmiq_service using (true);
create policy companies_jobs on companies for select to farmiq_jobs using (true);
grant select on companies to authenticated, farmiq_service;
grant select (company_id, tenant_id, name) on companies to farmiq_jobs;

-- People who sign in to the console. Passwords are kept as argon2 hashes only.
-- A regular user is locked to company_id; a super admin chooses (004). Only the owner makes either.
create table users (
  user_id uuid constraint users_pkey primary key,
  company_id uuid not null constraint users_company_fkey references companies (company_id),
  email text not null constraint users_email_key unique
    constraint users_email_lower check (email = lower(email)),
  password_hash text not null,
  is_super_admin boolean not null default false,
  created_at timestamptz not null default now()
);
create index users_company_id_idx on users (company_id);

alter table users enable row level security;
alter table users force row level security;
create policy "Users see in their company" on users for select to authenticated
  using (company_id = get_active_company_id());
-- Whoever owns the database adds users; FORCE holds for owners too.
create policy users_owner on users for all to current_user using (true) with check (true);
create policy users_service on users for select to farmiq_service using (true);
create policy users_jobs on users for select to farmiq_jobs using (true);
grant select (user_id, company_id, email, is_super_admin, created_at) on users to authenticated;
grant select on users to farmiq_service;
grant select (user_id, company_id, is_super_admin) on users to farmiq_jobs;

-- What a person may do in a company. It gives a role, never a view: which company a person sees
-- is users.company_id, or a super admin's choice.
create table memberships (
  user_id uuid not null constraint memberships_user_fkey
    references users (user_id) on delete cascade,
  company_id uuid not null constraint memberships_company_fkey references companies (company_id),
  role text not null constraint memberships_role_known
    check (role in ('viewer', 'operator', 'technician', 'admin')),
  created_at timestamptz not null default now(),
  constraint memberships_pkey primary key (user_id, company_id)
);
create index memberships_company_id_idx on memberships (company_id);

alter table memberships enable row level security;
alter table memberships force row level security;
create policy "Users see in their company" on memberships for select to authenticated
  using (company_id = get_active_company_id());
create policy memberships_owner on memberships for all to current_user
  using (true) with check (true);
create policy memberships_service on memberships for select to farmiq_service using (true);
grant select on memberships to authenticated, farmiq_service;

-- Who is signed in. The cookie holds a random token; only its hash is kept here.
-- company_id is what this sign-in looks at: a super admin's choice is kept per sign-in.
create table sign_ins (
  token_hash bytea constraint sign_ins_pkey primary key,
  user_id uuid not null constraint sign_ins_user_fkey references users (user_id) on delete cascade,
  company_id uuid not null constraint sign_ins_company_fkey references companies (company_id),
  csrf_token text not null,
  created_at timestamptz not null default now(),
  expires_at timestamptz not null
);
create index sign_ins_expires_at_idx on sign_ins (expires_at);
create index sign_ins_user_id_idx on sign_ins (user_id);

alter table sign_ins enable row level security;
alter table sign_ins force row level security;
create policy sign_ins_owner on sign_ins for all to current_user using (true) with check (true);
create policy sign_ins_service on sign_ins for all to farmiq_service using (true) with check (true);
create policy sign_ins_jobs on sign_ins for select to farmiq_jobs using (true);
grant select, insert, update, delete on sign_ins to farmiq_service;
grant select (token_hash, user_id, company_id, expires_at) on sign_ins to farmiq_jobs;

-- Every event the cloud has accepted, once. A row here means: the bus has confirmed it (C-10).
create table ingestion_dedupe (
  tenant_id text not null,
  event_id uuid not null,
  event_type text not null,
  content_hash bytea not null,
  batch_id text not null,
  received_at timestamptz not null default now(),
  constraint ingestion_dedupe_pkey primary key (tenant_id, event_id)
);

alter table ingestion_dedupe enable row level security;
alter table ingestion_dedupe force row level security;
create policy "Users see in their company" on ingestion_dedupe for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy ingestion_dedupe_service on ingestion_dedupe for all to farmiq_service
  using (true) with check (true);
grant select on ingestion_dedupe to authenticated;
grant select, insert on ingestion_dedupe to farmiq_service;

-- An id that came again with another content: answered as a duplicate, but never silently (C-05).
create table event_conflicts (
  tenant_id text not null,
  event_id uuid not null,
  content_hash bytea not null,
  first_content_hash bytea not null,
  batch_id text not null,
  seen_at timestamptz not null default now(),
  constraint event_conflicts_pkey primary key (tenant_id, event_id, content_hash)
);

alter table event_conflicts enable row level security;
alter table event_conflicts force row level security;
create policy "Users see in their company" on event_conflicts for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy event_conflicts_service on event_conflicts for all to farmiq_service
  using (true) with check (true);
grant select on event_conflicts to authenticated;
grant select, insert on event_conflicts to farmiq_service;

-- Every reading, once per event.
create table telemetry_readings (
  tenant_id text not null,
  event_id uuid not null,
  farm_id text not null,
  barn_id text not null,
  device_id text not null,
  metric_type text not null,
  metric_value double precision not null,
  unit text not null,
  occurred_at timestamptz not null,
  trace_id text not null,
  stored_at timestamptz not null default clock_timestamp(),
  constraint telemetry_readings_pkey primary key (tenant_id, event_id)
);
create index telemetry_readings_device_idx
  on telemetry_readings (tenant_id, device_id, metric_type, occurred_at desc);

alter table telemetry_readings enable row level security;
alter table telemetry_readings force row level security;
create policy "Users see in their company" on telemetry_readings for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy telemetry_readings_service on telemetry_readings for all to farmiq_service
  using (true) with check (true);
grant select on telemetry_readings to authenticated;
grant select, insert on telemetry_readings to farmiq_service;

-- The newest reading of each metric of each device, and how many readings there were.
-- reading_count grows only with rows new in telemetry_readings, so it proves "nothing twice".
create table telemetry_latest (
  tenant_id text not null,
  device_id text not null,
  metric_type text not null,
  farm_id text not null,
  barn_id text not null,
  event_id uuid not null,
  metric_value double precision not null,
  unit text not null,
  occurred_at timestamptz not null,
  stored_at timestamptz not null default clock_timestamp(),
  reading_count bigint not null,
  constraint telemetry_latest_pkey primary key (tenant_id, device_id, metric_type)
);

alter table telemetry_latest enable row level security;
alter table telemetry_latest force row level security;
create policy "Users see in their company" on telemetry_latest for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy telemetry_latest_service on telemetry_latest for all to farmiq_service
  using (true) with check (true);
grant select on telemetry_latest to authenticated;
grant select, insert, update on telemetry_latest to farmiq_service;
