"""Builds of profiles: compiled, locked, published, and told whether they are fresh."""
