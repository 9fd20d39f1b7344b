"""Battery cameras: the accounts of every wake, from the wire to a site's day."""
