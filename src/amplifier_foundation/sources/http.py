"""Single files by http(s) as sources."""

from amplifier_foundation.paths.resolution import ParsedURI

from .handler import SourceHandler


class HttpSourceHandler(SourceHandler):
    """`http(s)://…`: a file, stored under its own name."""

    def can_handle(self, parsed: ParsedURI) -> bool:
        return parsed.is_http
