"""What secrets look like, all of it: by their shape and by their name."""

from .named_secrets import ASSIGNED_SECRET
from .patterns import SensitivePattern
from .secret_tokens import TOKEN_PATTERNS

SECRET_PATTERNS: tuple[SensitivePattern, ...] = (*TOKEN_PATTERNS, ASSIGNED_SECRET)
