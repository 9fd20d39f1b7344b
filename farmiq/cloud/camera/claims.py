"""Whose a MAC address is, when more than one company has registered it.

Everybody may claim an address: nobody is told of, or kept off by, somebody else's claim. A claim is
proven when the camera speaks while it is the one in charge; the others wait and hear nothing.
"""

# Of the rows `d` of devices: the one whose camera a MAC address is. That is the proven claim; else
# the one that was given the login; else the only one.
IN_CHARGE = """
  d.is_active and (
    d.proven_at is not null
    or not exists (
      select from devices o where o.mac = d.mac and o.is_active and o.device_id <> d.device_id)
    or (exists (
        select from camera_logins l where l.device_id = d.device_id and l.revoked_at is null)
      and not exists (
        select from devices o where o.mac = d.mac and o.is_active and o.proven_at is not null)))
"""
