"""Archives as sources."""

from amplifier_foundation.paths.resolution import ParsedURI

from .handler import SourceHandler


class ZipSourceHandler(SourceHandler):
    """`zip+<url>`: an archive, extracted once; the extracted tree is used even when the archive is gone."""

    def can_handle(self, parsed: ParsedURI) -> bool:
        return parsed.is_zip
