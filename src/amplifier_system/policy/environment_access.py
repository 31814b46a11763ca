"""Which variables of the environment programs of a session are given."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Self

PASSED_VARIABLES: dict[str, str] = {
    # what any program goes by
    "PATH": "where programs are found",
    "HOME": "where programs keep their files",
    "USER": "who the user is",
    "LOGNAME": "who the user is",
    "SHELL": "which shell programs start",
    "PWD": "the working directory as it was entered",
    "TMPDIR": "where temporary files go",
    "LANG": "language and encoding",
    "LANGUAGE": "languages of messages",
    "LC_*": "language and encoding, one by one",
    "TZ": "the time zone",
    "TERM": "what the terminal understands",
    "COLORTERM": "what the terminal understands",
    "NO_COLOR": "that output has no colours",
    "CI": "that nobody answers questions of tools",
    "XDG_*": "where programs keep configuration, data and caches",
    "AMPLIFIER_CHILD_*": "which of our commands a program belongs to, so that it ends with it",
    # the way to the network
    "HTTP_PROXY": "the proxy for http",
    "HTTPS_PROXY": "the proxy for https",
    "FTP_PROXY": "the proxy for ftp",
    "ALL_PROXY": "the proxy for everything",
    "NO_PROXY": "which hosts are reached without the proxy",
    "SSL_CERT_FILE": "trusted certificates, for OpenSSL",
    "SSL_CERT_DIR": "trusted certificates, for OpenSSL",
    "REQUESTS_CA_BUNDLE": "trusted certificates, for Python's requests",
    "CURL_CA_BUNDLE": "trusted certificates, for curl",
    "GIT_SSL_CAINFO": "trusted certificates, for git",
    "NODE_EXTRA_CA_CERTS": "trusted certificates, for Node",
    "PIP_CERT": "trusted certificates, for pip",
    "CARGO_HTTP_CAINFO": "trusted certificates, for cargo",
    "NIX_SSL_CERT_FILE": "trusted certificates, for Nix",
    # whose commits they are
    "GIT_AUTHOR_NAME": "the author of commits",
    "GIT_AUTHOR_EMAIL": "the author of commits",
    "GIT_COMMITTER_NAME": "the committer of commits",
    "GIT_COMMITTER_EMAIL": "the committer of commits",
    # where toolchains are
    "VIRTUAL_ENV": "the active Python environment",
    "PYTHONPATH": "where Python finds modules",
    "PYTHONHOME": "where Python's library is",
    "PYTHONDONTWRITEBYTECODE": "that Python leaves no bytecode",
    "PYTHONUTF8": "Python's encoding",
    "PYENV_ROOT": "where pyenv keeps Pythons",
    "PYENV_VERSION": "which Python pyenv runs",
    "CONDA_PREFIX": "the active conda environment",
    "CONDA_EXE": "where conda is",
    "CONDA_PYTHON_EXE": "conda's own Python",
    "CONDA_DEFAULT_ENV": "the active conda environment's name",
    "CONDA_SHLVL": "how many conda environments are active",
    "MAMBA_ROOT_PREFIX": "where mamba keeps environments",
    "PIPX_HOME": "where pipx keeps applications",
    "PIP_CACHE_DIR": "pip's cache",
    "UV_CACHE_DIR": "uv's cache",
    "UV_PYTHON": "which Python uv runs",
    "UV_PYTHON_INSTALL_DIR": "where uv keeps Pythons",
    "POETRY_HOME": "where poetry is",
    "NVM_DIR": "where nvm keeps Node",
    "NVM_BIN": "the active Node's programs",
    "NODE_PATH": "where Node finds modules",
    "NODE_ENV": "whether Node builds for development",
    "FNM_DIR": "where fnm keeps Node",
    "FNM_MULTISHELL_PATH": "the active Node of fnm",
    "VOLTA_HOME": "where Volta keeps Node",
    "PNPM_HOME": "where pnpm keeps programs",
    "COREPACK_HOME": "where corepack keeps package managers",
    "BUN_INSTALL": "where Bun is",
    "DENO_DIR": "Deno's cache",
    "GOPATH": "Go's workspace",
    "GOROOT": "where Go is",
    "GOBIN": "where Go installs programs",
    "GOCACHE": "Go's cache",
    "GOMODCACHE": "Go's downloaded modules",
    "GOFLAGS": "options of every go command",
    "GOOS": "the system that Go builds for",
    "GOARCH": "the processor that Go builds for",
    "GOTOOLCHAIN": "which Go runs",
    "CGO_ENABLED": "whether Go builds with C",
    "CARGO_HOME": "where cargo keeps crates and programs",
    "CARGO_TARGET_DIR": "where cargo builds",
    "RUSTUP_HOME": "where rustup keeps toolchains",
    "RUSTUP_TOOLCHAIN": "which Rust runs",
    "RUSTFLAGS": "options of every Rust build",
    "RUST_BACKTRACE": "how much a Rust program tells when it fails",
    "JAVA_HOME": "where Java is",
    "JDK_HOME": "where Java is",
    "GRADLE_USER_HOME": "Gradle's cache and settings",
    "GRADLE_HOME": "where Gradle is",
    "MAVEN_HOME": "where Maven is",
    "M2_HOME": "where Maven is",
    "KOTLIN_HOME": "where Kotlin is",
    "SCALA_HOME": "where Scala is",
    "SDKMAN_DIR": "where SDKMAN keeps Java tools",
    "SDKMAN_CANDIDATES_DIR": "where SDKMAN keeps Java tools",
    "JABBA_HOME": "where jabba keeps Java",
    "ANDROID_HOME": "where the Android SDK is",
    "ANDROID_SDK_ROOT": "where the Android SDK is",
    "ANDROID_NDK_HOME": "where the Android NDK is",
    "DOTNET_ROOT": "where .NET is",
    "DOTNET_CLI_HOME": "where .NET keeps its files",
    "NUGET_PACKAGES": "NuGet's downloaded packages",
    "GEM_HOME": "where Ruby installs gems",
    "GEM_PATH": "where Ruby finds gems",
    "RBENV_ROOT": "where rbenv keeps Rubies",
    "RBENV_VERSION": "which Ruby rbenv runs",
    "BUNDLE_PATH": "where Bundler installs gems",
    "BUNDLE_GEMFILE": "which gems Bundler goes by",
    "COMPOSER_HOME": "where Composer keeps its files",
    "PERL5LIB": "where Perl finds modules",
    "PERL_LOCAL_LIB_ROOT": "where Perl installs modules",
    "LUA_PATH": "where Lua finds modules",
    "LUA_CPATH": "where Lua finds modules",
    "R_HOME": "where R is",
    "R_LIBS_USER": "where R finds packages",
    "JULIA_DEPOT_PATH": "where Julia keeps packages",
    "GHCUP_INSTALL_BASE_PREFIX": "where ghcup keeps Haskell",
    "STACK_ROOT": "where Stack keeps Haskell",
    "CABAL_DIR": "where Cabal keeps packages",
    "OPAMROOT": "where opam keeps OCaml",
    "OPAM_SWITCH_PREFIX": "the active OCaml",
    "ERL_LIBS": "where Erlang finds libraries",
    "MIX_ENV": "which environment Elixir builds",
    "MIX_HOME": "where Mix keeps archives",
    "FLUTTER_ROOT": "where Flutter is",
    "PUB_CACHE": "Dart's downloaded packages",
    "SWIFTLY_HOME_DIR": "where swiftly keeps Swift",
    "DEVELOPER_DIR": "the active Xcode",
    "SDKROOT": "the active SDK of Xcode",
    "MACOSX_DEPLOYMENT_TARGET": "the macOS that is built for",
    "HOMEBREW_PREFIX": "where Homebrew is",
    "HOMEBREW_CELLAR": "where Homebrew keeps programs",
    "HOMEBREW_REPOSITORY": "where Homebrew is",
    "ASDF_DIR": "where asdf is",
    "ASDF_DATA_DIR": "where asdf keeps tools",
    "MISE_DATA_DIR": "where mise keeps tools",
    "NIX_PATH": "where Nix finds expressions",
    "NIX_PROFILES": "the active profiles of Nix",
    "CC": "the C compiler",
    "CXX": "the C++ compiler",
    "CPP": "the C preprocessor",
    "LD": "the linker",
    "AR": "the archiver",
    "CFLAGS": "options of C builds",
    "CXXFLAGS": "options of C++ builds",
    "CPPFLAGS": "options of the preprocessor",
    "LDFLAGS": "options of the linker",
    "MAKEFLAGS": "options of make",
    "CPATH": "where C headers are",
    "C_INCLUDE_PATH": "where C headers are",
    "CPLUS_INCLUDE_PATH": "where C++ headers are",
    "LIBRARY_PATH": "where libraries are linked from",
    "LD_LIBRARY_PATH": "where libraries are loaded from",
    "DYLD_LIBRARY_PATH": "where libraries are loaded from, on macOS",
    "PKG_CONFIG_PATH": "where pkg-config finds libraries",
    "CMAKE_PREFIX_PATH": "where CMake finds packages",
    "CMAKE_GENERATOR": "what CMake builds with",
    "CCACHE_DIR": "the compiler cache",
    "MANPATH": "where manual pages are",
    "INFOPATH": "where info pages are",
    "CUDA_HOME": "where CUDA is",
    "CUDA_PATH": "where CUDA is",
    "CUDA_VISIBLE_DEVICES": "which GPUs are used",
    "ROCM_PATH": "where ROCm is",
    "OMP_NUM_THREADS": "how many threads numerical code uses",
    "HF_HOME": "where models and data sets are cached",
    "WSL_DISTRO_NAME": "which Linux runs below Windows",
}

SECRET_VARIABLES = (
    "*_KEY",
    "*TOKEN",
    "*_TOKENS",
    "*_PAT",
    "*PASSPHRASE*",
    "*WEBHOOK*",
    "*_SECRET",
    "*PASSWORD*",
    "*PASSWD*",
    "*_PASS",
    "*_PWD",
    "*_CREDENTIALS",
    "*_CREDENTIAL",
    "*_AUTH",
    "*_DSN",
    "*APIKEY*",
    "*API_KEY*",
    "*SECRET*",
    "*_ACCESS_KEY_ID",
    "AWS_*",
    "AZURE_*",
    "ARM_*",
    "GOOGLE_APPLICATION_*",
    "DATABASE_URL",
    "REDIS_URL",
    "MONGO*_URI",
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "GPG_AGENT_INFO",
    "NPM_CONFIG_*AUTH*",
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "UV_INDEX_URL",
    "UV_EXTRA_INDEX_URL",
)
"""Names of variables that carry secrets, or lead to them."""

_USUAL = tuple(PASSED_VARIABLES)
_OF_SHELLS = frozenset({"_", "OLDPWD", "SHLVL"})  # each shell sets its own
_PASSWORD_IN_URL = re.compile(r"://[^\s/?#@:]*:[^\s/?#]+@")


@dataclass(frozen=True, slots=True)
class ProgramEnvironment:
    """The variables that a program is given, and the names of those that are kept from it."""

    variables: dict[str, str]
    withheld: tuple[str, ...]


def has_password(value: str) -> bool:
    """True if a URL with a password stands in a value."""
    return "://" in value and _PASSWORD_IN_URL.search(value) is not None


@dataclass(frozen=True, slots=True)
class EnvironmentAccess:
    """Patterns of names, in any case: what every program needs and what fits `passed` is passed on.

    What fits a `denied` pattern, and a value that is a secret, is passed only where `passed` has its very name.
    """

    passed: tuple[str, ...]
    denied: tuple[str, ...]
    bounds: tuple[tuple[str, ...], ...] = ()
    """Further lists; what is passed beyond the usual fits one pattern of each."""

    def narrowed(self, passed: Sequence[str] | None, denied: Sequence[str]) -> Self:
        """Return the access that also keeps to these rules; a name is passed when both pass it."""
        kept = tuple(name for name in self.passed if name == "*" or not _is_any_of(name, tuple(denied)))
        bounds = self.bounds if passed is None else (*self.bounds, tuple(passed))
        return replace(self, passed=kept, denied=(*self.denied, *denied), bounds=bounds)

    def filtered(self, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the variables that a program is given."""
        return self.divided(environ).variables

    def divided(
        self, environ: Mapping[str, str] | None = None, *, is_secret: Callable[[str], bool] = has_password
    ) -> ProgramEnvironment:
        """Return what a program is given and what is kept from it; `is_secret` judges a value besides its name."""
        given: dict[str, str] = {}
        withheld: list[str] = []
        for name, value in (os.environ if environ is None else environ).items():
            is_meant = name in self.passed and all(_is_any_of(name, bound) for bound in self.bounds)
            if is_meant or (_is_passed(name, self) and not is_secret(value)):
                given[name] = value
            elif name not in _OF_SHELLS:
                withheld.append(name)
        return ProgramEnvironment(given, tuple(sorted(withheld)))


@lru_cache(maxsize=4096)
def _is_passed(name: str, access: EnvironmentAccess) -> bool:
    if _is_any_of(name, access.denied):
        return False
    return _is_any_of(name, _USUAL) or all(_is_any_of(name, list_) for list_ in (access.passed, *access.bounds))


def _is_any_of(name: str, patterns: tuple[str, ...]) -> bool:
    upper = name.upper()
    return any(fnmatchcase(upper, pattern.upper()) for pattern in patterns)
