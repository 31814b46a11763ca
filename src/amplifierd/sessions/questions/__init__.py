"""Questions that a session asks, and who answers them."""
