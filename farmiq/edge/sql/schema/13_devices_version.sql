-- Grows with every change of the registry: whoever keeps a copy looks here whether it is current.
create table devices_version (
  only_row boolean not null default true
    constraint devices_version_pkey primary key
    constraint devices_version_only_row check (only_row),
  version bigint not null
);
insert into devices_version (version) values (0);
grant select, update on devices_version to farmiq_edge;
