-- Whether the cloud was last told that a device is revoked; what was revoked before is told once.
alter table devices add column revocation_told boolean not null default false;
