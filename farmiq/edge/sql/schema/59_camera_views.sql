-- What each camera usually shows, learned from its images without a weighing (D-563): `state` is the
-- worker's own. Of the image that was captured last; an older one that comes late changes nothing.
create table camera_views (
  tenant_id text not null,
  device_id text not null,
  captured_at timestamptz not null,
  view text not null constraint camera_views_view_known
    check (view in ('learning', 'ok', 'moved', 'dirty', 'dark', 'bright')),
  state bytea not null,
  updated_at timestamptz not null,
  constraint camera_views_pkey primary key (tenant_id, device_id)
);
grant select, insert, update, delete on camera_views to farmiq_edge;
