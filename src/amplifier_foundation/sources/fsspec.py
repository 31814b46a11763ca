"""Whatever an installed fsspec backend can read as sources."""

from amplifier_foundation.paths.resolution import ParsedURI

from .handler import SourceHandler


class FsspecSourceHandler(SourceHandler):
    """`<scheme>://…` of any other kind: a file or a directory, copied once."""

    def can_handle(self, parsed: ParsedURI) -> bool:
        return bool(parsed.scheme) and not (parsed.is_file or parsed.is_git or parsed.is_zip or parsed.is_http)
