"""Secrets and personal data in texts and plain data: what they look like, and how they are masked."""

from .masking import DEFAULT_RULES, mask_text
from .personal_patterns import PII_PATTERNS
from .protection import DEFAULT_ALLOWLIST
from .scrubbing import scrub
from .secret_patterns import SECRET_PATTERNS

__all__ = ["DEFAULT_ALLOWLIST", "DEFAULT_RULES", "PII_PATTERNS", "SECRET_PATTERNS", "mask_text", "scrub"]
