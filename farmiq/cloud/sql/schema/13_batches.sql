-- Batches: animals that were placed in a barn together. Of one barn no two overlap.
-- closed_on is the last day on which they were there; a batch without it is still there. Without
-- age_at_placing_days nobody knows how old they are: nothing is compared by age then.
create table batches (
  tenant_id text not null,
  batch_id text not null,
  farm_id text not null,
  barn_id text not null,
  species text not null,
  breed text,
  sex text not null default 'mixed'
    constraint batches_sex_known check (sex in ('female', 'male', 'mixed')),
  placed_count integer not null constraint batches_placed_positive check (placed_count > 0),
  placed_on date not null,
  age_at_placing_days integer
    constraint batches_age_known check (age_at_placing_days between 0 and 10000),
  target_weight_kg double precision constraint batches_target_positive check (target_weight_kg > 0),
  target_on date,
  closed_on date,
  changed_at timestamptz not null default now(),
  constraint batches_pkey primary key (tenant_id, batch_id),
  constraint batches_barn_fkey foreign key (tenant_id, farm_id, barn_id)
    references barns (tenant_id, farm_id, barn_id),
  constraint batches_closed_after_placing check (closed_on >= placed_on),
  constraint batches_target_after_placing check (target_on >= placed_on)
);
create index batches_barn_idx on batches (tenant_id, farm_id, barn_id, placed_on);
create trigger batches_one_at_a_time before insert or update on batches
  for each row execute function fn_batches_one_at_a_time();

alter table batches enable row level security;
alter table batches force row level security;
create policy "Users see in their company" on batches for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy batches_service on batches for all to farmiq_service
  using (true) with check (true);
grant select on batches to authenticated;
grant select, insert, update, delete on batches to farmiq_service;
