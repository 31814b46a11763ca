"""Collections: named sources of profiles, registered, fetched, extracted and kept in step."""
