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
