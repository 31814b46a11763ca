"""Secrets and personal data in texts and plain data: what they look like, and how they are masked."""

from .personal_patterns import PII_PATTERNS
from .scrubbing import DEFAULT_ALLOWLIST, DEFAULT_RULES, mask_text, scrub
from .secret_patterns import SECRET_PATTERNS

__all__ = ["DEFAULT_ALLOWLIST", "DEFAULT_RULES", "PII_PATTERNS", "SECRET_PATTERNS", "mask_text", "scrub"]
