"""Markdown as HTML that a browser can be given: rendered, highlighted, sanitised, and bounded in time.

`markdown.render` does it; `child` is a process that does it for a daemon. This package lies at the bottom, so that such
a process starts quickly and has no user data.
"""
