"""Reading and writing files: retries for cloud-synced folders, YAML, front matter, backups."""

from .files import read_with_retry, write_with_backup, write_with_retry
from .frontmatter import parse_frontmatter, split_anchored_frontmatter, split_frontmatter
from .yaml import load_yaml, read_yaml, write_yaml, yaml_problem

__all__ = [
    "load_yaml",
    "parse_frontmatter",
    "read_with_retry",
    "read_yaml",
    "split_anchored_frontmatter",
    "split_frontmatter",
    "write_with_backup",
    "write_with_retry",
    "write_yaml",
    "yaml_problem",
]
