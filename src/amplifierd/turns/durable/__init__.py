"""Turns in the database that several daemons share, handed out by an engine that lives there."""
