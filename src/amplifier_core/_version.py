"""The one place the version is written; the package and the distribution both read it."""

import os
import warnings

__version__ = "0.1.0"

_LABEL = "+amplifier."
ECOSYSTEM_VERSION = f"2.0.2{_LABEL}{__version__}"
"""The version of `amplifier-core` and `amplifier-foundation` here: the release whose public surface we carry."""


def warn_of_other_distributions(package: str) -> None:
    """Warn if another distribution was installed beside the kernel's files, which lie in the folder `package`.

    One look at a directory, and none at all in a checkout.
    """
    folder = package.rpartition(os.sep)[0]
    if not folder.endswith("-packages"):
        return
    for name in os.listdir(folder):  # noqa: PTH208 - asked at every import, and names are enough
        if name.startswith(("amplifier_core-", "amplifier_foundation-")) and name.endswith(".dist-info"):
            other, _, version = name.removesuffix(".dist-info").partition("-")
            if _LABEL not in version:
                text = f"{other.replace('_', '-')} {version} is installed into the files of Amplifier's own"
                warnings.warn(f"{text}; what to do about it says: python -m amplifier_cli doctor", stacklevel=3)
