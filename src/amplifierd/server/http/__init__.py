"""What every request passes through: guards, problems, idempotency, pages of lists, and streams of events."""
