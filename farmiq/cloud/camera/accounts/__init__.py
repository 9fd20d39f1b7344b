"""cloud-camera-accounts: what is registered of battery cameras, and the accounts of their wakes."""
