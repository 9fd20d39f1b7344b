"""What cameras send and are sent: messages, and their bytes in each dialect."""
