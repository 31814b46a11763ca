"""Profiles: authored files, their inheritance, and the builds they are compiled to."""
