"""What a running daemon has, without the web: its home, its sessions at work, its events, and who may use it."""
