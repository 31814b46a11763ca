"""Turns from their submit to their end: kept in this daemon, or in the database that several share."""
