"""Profiles as texts: read, inherited from each other and merged. They know no home."""
