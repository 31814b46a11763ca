"""Profiles: where they come from, what they say, and the builds that are made of them."""
