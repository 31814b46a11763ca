"""Sessions at work: one runtime that the command, the daemon and every library user drive."""
