"""What secrets look like, all of it: by their shape and by their name."""

from .command_passwords import COMMAND_PASSWORDS
from .named_secrets import ASSIGNED_SECRET
from .patterns import SensitivePattern
from .secret_tokens import TOKEN_PATTERNS

SECRET_PATTERNS: tuple[SensitivePattern, ...] = (*TOKEN_PATTERNS, *COMMAND_PASSWORDS, ASSIGNED_SECRET)
