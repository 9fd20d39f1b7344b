"""edge-ingress-gateway: the only reader of what devices send."""
