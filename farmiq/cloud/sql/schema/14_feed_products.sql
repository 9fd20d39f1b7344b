-- Feed products that lots are of.
create table feed_products (
  tenant_id text not null,
  feed_product_id text not null,
  name text not null constraint feed_products_name_given check (name <> ''),
  species text,
  dry_matter_pct double precision
    constraint feed_products_dry_matter_share check (dry_matter_pct between 0 and 100),
  energy_mj_per_kg double precision
    constraint feed_products_energy_positive check (energy_mj_per_kg > 0),
  changed_at timestamptz not null default now(),
  constraint feed_products_pkey primary key (tenant_id, feed_product_id),
  constraint feed_products_tenant_fkey foreign key (tenant_id) references companies (tenant_id)
);

alter table feed_products enable row level security;
alter table feed_products force row level security;
create policy "Users see in their company" on feed_products for select to authenticated
  using (tenant_id = (select get_active_tenant_id()));
create policy feed_products_service on feed_products for all to farmiq_service
  using (true) with check (true);
grant select on feed_products to authenticated;
grant select, insert, update, delete on feed_products to farmiq_service;
