"""Addresses as sources."""
