"""Events on their way to whoever watches."""
