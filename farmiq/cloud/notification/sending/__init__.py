"""What is sent: messages as an outbox, the channels they leave by, and what became of them."""
