"""The messages of a session, kept and made whole."""
