-- Whose a camera's chunks are that have no name: speaks_of is the transfer that it announced last, null
-- after a HELLO (the one announced next), and the nil UUID if that announcement was refused. spoke_of
-- is the same of what is tried again.
alter table devices
  add column speaks_of uuid,
  add column spoke_of uuid;
grant update (speaks_of, spoke_of) on devices to farmiq_service;

-- Which cameras were asked for whatever they hold, in vain.
create index camera_commands_in_vain_idx on camera_commands (device_id, sent_at)
  where state = 'expired' and image_id is null;
