"""RabbitMQ: topology, confirmed publishing, consuming in batches with retries."""
