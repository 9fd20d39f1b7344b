-- Whose a camera's chunks are that have no name: speaks_of is the transfer that it announced last, null
-- after a HELLO (the one announced next), and the nil UUID if that announcement was refused. spoke_of
-- is the same of what is tried again.
alter table devices
  add column speaks_of uuid,
  add column spoke_of uuid;
grant update (speaks_of, spoke_of) on devices to farmiq_service;
