"""The file types that `grep` knows, by the endings of their names."""

from amplifier_kit.tools.input import ToolFailure

SUFFIXES: dict[str, tuple[str, ...]] = {
    "c": (".c", ".h"),
    "cpp": (".cpp", ".cc", ".cxx", ".c++", ".hpp", ".hh", ".hxx", ".h++", ".h", ".inl"),
    "cs": (".cs",),
    "css": (".css", ".scss"),
    "go": (".go",),
    "h": (".h", ".hh", ".hpp"),
    "hpp": (".hpp", ".hh", ".hxx", ".h++"),
    "html": (".html", ".htm"),
    "java": (".java",),
    "js": (".js", ".jsx", ".mjs", ".cjs"),
    "json": (".json",),
    "lua": (".lua",),
    "md": (".md", ".markdown", ".mdx"),
    "php": (".php", ".phtml"),
    "py": (".py", ".pyi"),
    "rb": (".rb", ".gemspec", ".rake"),
    "rust": (".rs",),
    "sh": (".sh", ".bash", ".zsh", ".ksh"),
    "sql": (".sql",),
    "swift": (".swift",),
    "toml": (".toml",),
    "ts": (".ts", ".tsx", ".mts", ".cts"),
    "txt": (".txt",),
    "xml": (".xml", ".xsd", ".xsl", ".xslt", ".svg"),
    "yaml": (".yaml", ".yml"),
}
ALIASES = {
    "typescript": "ts",
    "javascript": "js",
    "python": "py",
    "ruby": "rb",
    "markdown": "md",
    "shell": "sh",
    "bash": "sh",
    "csharp": "cs",
    "c#": "cs",
    "c++": "cpp",
    "cplusplus": "cpp",
    "golang": "go",
    "rs": "rust",
    "yml": "yaml",
    "tsx": "ts",
    "jsx": "js",
}


def suffixes_of(file_type: str) -> tuple[str, ...]:
    """Return the endings of a type or one of its other names; raises `ToolFailure` for an unknown one."""
    name = file_type.lower()
    suffixes = SUFFIXES.get(ALIASES.get(name, name))
    if suffixes is None:
        message = f"Unrecognized file type: '{file_type}'. Valid types: {', '.join(SUFFIXES)}"
        raise ToolFailure(message, "invalid_input")
    return suffixes
