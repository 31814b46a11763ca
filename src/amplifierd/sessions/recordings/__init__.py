"""Sessions as files that travel, and runs that are repeated."""
