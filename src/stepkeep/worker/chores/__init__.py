"""What a worker does beside attempts: membership, polling, relays, archives."""
