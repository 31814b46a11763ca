"""The command `amplifierd`: serve, start and stop the daemon, and its tokens."""
