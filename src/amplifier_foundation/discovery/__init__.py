"""Reserved for discovering bundles; empty."""

__all__: list[str] = []
