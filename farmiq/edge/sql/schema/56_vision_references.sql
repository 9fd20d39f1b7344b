-- The newest picture of each station's empty scale, against which animals are told from the floor.
create table vision_references (
  tenant_id text not null,
  device_id text not null,
  media_id uuid not null,
  object_key text not null,
  captured_at timestamptz not null,
  constraint vision_references_pkey primary key (tenant_id, device_id)
);
grant select, insert, update, delete on vision_references to farmiq_edge;
