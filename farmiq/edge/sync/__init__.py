"""edge-sync-forwarder: the outbox to the cloud, over HTTP."""
