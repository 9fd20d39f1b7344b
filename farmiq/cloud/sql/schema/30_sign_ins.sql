-- Who is signed in. The cookie holds a random token; only its hash is kept here.
-- company_id is what this sign-in looks at: a super admin's choice is kept per sign-in.
create table sign_ins (
  token_hash bytea constraint sign_ins_pkey primary key,
  user_id uuid not null constraint sign_ins_user_fkey references users (user_id) on delete cascade,
  company_id uuid not null constraint sign_ins_company_fkey references companies (company_id),
  csrf_token text not null,
  created_at timestamptz not null default now(),
  expires_at timestamptz not null,
  -- What the person sees of it: its name, from where and when it was used last.
  session_id uuid not null default gen_random_uuid(),
  last_seen_at timestamptz not null default now(),
  network text not null default '',
  user_agent text not null default '',
  -- How they proved who they are; command: `farmiq user token` did.
  method text not null default 'password' constraint sign_ins_method_known
    check (method in ('password', 'code', 'recovery_code', 'command'))
);
create index sign_ins_expires_at_idx on sign_ins (expires_at);
create index sign_ins_user_id_idx on sign_ins (user_id);

alter table sign_ins enable row level security;
alter table sign_ins force row level security;
create policy sign_ins_owner on sign_ins for all to current_user using (true) with check (true);
create policy sign_ins_service on sign_ins for all to farmiq_service using (true) with check (true);
create policy sign_ins_jobs on sign_ins for select to farmiq_jobs using (true);
create policy sign_ins_jobs_end on sign_ins for delete to farmiq_jobs using (true);
grant select, insert, update, delete on sign_ins to farmiq_service;
grant select (token_hash, user_id, company_id, expires_at) on sign_ins to farmiq_jobs;
grant delete on sign_ins to farmiq_jobs;
