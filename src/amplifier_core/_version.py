"""The one place the version is written; the package and the distribution both read it."""

__version__ = "0.1.0"
