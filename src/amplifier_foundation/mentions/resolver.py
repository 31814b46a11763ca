"""Where mentions lead: into a bundle by its namespace, else below a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amplifier_foundation.bundle import Bundle


class BaseMentionResolver:
    """Finds `@namespace:path` in the bundle of that namespace and `@path` below a folder.

    Nothing is refused, `..` included: policy is for the application that wraps this. With `literal` the full stop or
    colon behind a mention always belongs to it.
    """

    def __init__(
        self, bundles: dict[str, Bundle] | None = None, base_path: Path | None = None, *, literal: bool = False
    ) -> None:
        self.bundles: dict[str, Bundle] = bundles if bundles is not None else {}
        self.base_path = base_path if base_path is not None else Path.cwd()
        self._literal = literal

    def register_bundle(self, name: str, bundle: Bundle) -> None:
        self.bundles[name] = bundle

    def resolve(self, mention: str, relative_to: Path | None = None) -> Path | None:
        """Return the file or folder that `mention` means, or `None`.

        `relative_to` is a folder that is tried before the base folder. A sentence's full stop or colon at the end of a
        mention is dropped when nothing has the name with it.
        """
        if not mention.startswith("@"):
            return None
        body = mention[1:]
        found = self._find(body, relative_to)
        shorter = body if self._literal else body.rstrip(".:")
        return self._find(shorter, relative_to) if found is None and shorter not in ("", body) else found

    def _find(self, body: str, relative_to: Path | None) -> Path | None:
        namespace, colon, rest = body.partition(":")
        if colon:
            bundle = self.bundles.get(namespace)
            return bundle.resolve_context_path(rest) if bundle is not None else None
        if body == "~":  # a sign in the text, not a wish to see the whole home directory
            return None
        try:
            return self._find_below(Path(body).expanduser(), relative_to)
        except (OSError, RuntimeError, ValueError):  # no such home, a name too long, a forbidden character
            return None

    def _find_below(self, path: Path, relative_to: Path | None) -> Path | None:
        for base in (relative_to, self.base_path):
            if base is not None:
                candidate = base / path
                for place in (candidate, candidate.with_name(f"{candidate.name}.md") if candidate.name else candidate):
                    if place.exists():
                        return place
        return None
