"""Builds as archives: the same bytes everywhere, and nothing that an archive says is done outside of its directory."""

import gzip
import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from amplifier_foundation.exceptions import RefResolutionError
from amplifier_system.threads import Stop
from amplifierd.profiles.builds.remote_builds import Measured, measure, pack, unpack

Member = tuple[tarfile.TarInfo, bytes]


def write_build(directory: Path, *, first: str) -> Path:
    """Write the same files in an order of one's own, with times of one's own."""
    names = ["profile.lock", "tools/tool-a/run.sh", "plan.json", f"tools/tool-a/{'deep/' * 40}ä.py"]
    for name in sorted(names, key=lambda name: name != first):
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"this is {name}\n")
        path.chmod({"plan.json": 0o600, "tools/tool-a/run.sh": 0o750}.get(name, 0o644))
        os.utime(path, (len(first), len(first)))
    (directory / "contexts/empty").mkdir(parents=True)
    (directory / "tools/__pycache__").mkdir()
    (directory / f"tools/__pycache__/{first.replace('/', '-')}.pyc").touch()
    return directory


def files_of(directory: Path) -> dict[str, tuple[int, bytes]]:
    return {
        path.relative_to(directory).as_posix(): (stat.S_IMODE(path.stat().st_mode), path.read_bytes())
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_the_same_build_is_the_same_archive_wherever_it_is_packed(tmp_path: Path) -> None:
    one = write_build(tmp_path / "one", first="profile.lock")
    other = write_build(tmp_path / "somewhere/else", first="tools/tool-a/run.sh")
    expected = measure(one, Stop())
    with (tmp_path / "archive").open("wb") as file:
        pack(other, file, Stop())

    unpack(tmp_path / "archive", tmp_path / "target", expected, ref="it", stop=Stop())

    found = files_of(tmp_path / "target")
    assert measure(other, Stop()) == expected
    assert expected.size % 512 == 0
    assert {name: content for name, (_, content) in found.items()} == {
        name: content for name, (_, content) in files_of(one).items() if not name.endswith(".pyc")
    }
    modes = {name: oct(mode) for name, (mode, _) in found.items() if "deep" not in name}
    assert modes == {"profile.lock": "0o444", "tools/tool-a/run.sh": "0o555", "plan.json": "0o400"}
    assert (tmp_path / "target/contexts/empty").is_dir()


def test_a_link_in_a_build_is_not_packed(tmp_path: Path) -> None:
    build = write_build(tmp_path / "build", first="plan.json")
    (build / "tools/tool-a/passwords").symlink_to("/etc")

    with pytest.raises(RefResolutionError, match="'tools/tool-a/passwords' is neither a file nor a directory"):
        measure(build, Stop())


def member(name: str, content: bytes = b"x", type: bytes = tarfile.REGTYPE, target: str = "") -> Member:
    found = tarfile.TarInfo(name)
    found.size, found.type, found.linkname = len(content), type, target
    return found, content


HOSTILE: dict[str, tuple[list[Member], str]] = {
    "a path from the root": ([member("/tmp/outside")], "'/tmp/outside' is not inside it"),
    "a path that leads up": ([member("a/../../outside")], "'a/../../outside' is not inside it"),
    "no name": ([member(".")], "'.' is not inside it"),
    "a link out": ([member("a", b"", tarfile.SYMTYPE, "/etc/passwd")], "'a' is neither a file nor a directory"),
    "a file behind a link": (
        [member("a", b"", tarfile.SYMTYPE, "/tmp"), member("a/outside")],
        "'a' is neither a file nor a directory",
    ),
    "a hard link": ([member("a", b"", tarfile.LNKTYPE, "/etc/passwd")], "'a' is neither a file nor a directory"),
    "a pipe": ([member("a", b"", tarfile.FIFOTYPE)], "'a' is neither a file nor a directory"),
    "a device": ([member("a", b"", tarfile.CHRTYPE)], "'a' is neither a file nor a directory"),
    "bytecode": ([member("tools/__pycache__/a.cpython-311.pyc")], "is bytecode"),
    "a name twice": ([member("a"), member("a")], "it names 'a' twice"),
    "a file as a directory": ([member("a"), member("a/b")], "it names '[ab]' twice"),
}


@pytest.mark.parametrize(("members", "told"), HOSTILE.values(), ids=list(HOSTILE))
def test_an_archive_is_refused_that_has(tmp_path: Path, members: list[Member], told: str) -> None:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    (tmp_path / "archive").write_bytes(gzip.compress(plain.getvalue()))
    expected = Measured(hashlib.sha256(plain.getvalue()).hexdigest(), len(plain.getvalue()))

    with pytest.raises(RefResolutionError, match=told):
        unpack(tmp_path / "archive", tmp_path / "target", expected, ref="it", stop=Stop())

    assert not any(path.is_symlink() for path in (tmp_path / "target").rglob("*"))
    assert not list(tmp_path.glob("outside*"))


def changed_head(info: tarfile.TarInfo, *changes: tuple[int, bytes]) -> bytes:
    """Return the head of a member with other bytes in some places, and the right checksum."""
    head = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    for place, content in changes:
        head[place : place + len(content)] = content
    head[148:156] = b"%06o\0 " % (256 + sum(head[:148]) + sum(head[156:]))
    return bytes(head)


def octal(number: int) -> bytes:
    return b"%011o\0" % number


def pax(*records: tuple[str, str], times: int = 1) -> bytes:
    member = tarfile.TarInfo("a")
    member.size, member.pax_headers = 512, dict(records)
    whole = member.tobuf(tarfile.PAX_FORMAT)
    return whole[:-512] * times + whole[-512:]


LARGE = 1 << 30
PLAIN = member("a", b"x" * 512)[0]
GREEDY: dict[str, bytes] = {
    "a file with holes": changed_head(
        PLAIN, (156, b"S"), (386, octal(0)), (398, octal(512)), (482, b"\0"), (483, octal(LARGE))
    ),
    "a file with holes that its head tells of": pax(
        ("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0"), ("GNU.sparse.realsize", str(LARGE))
    ),
    "a map of holes": pax(("GNU.sparse.map", "0,1," * 10), ("GNU.sparse.size", str(LARGE))),
    "a long head": pax(("comment", "x" * 1_000_000)),
    "a long name": changed_head(PLAIN, (156, b"L")),
    "many heads": pax(("path", "b"), times=3000),
    "a size below nothing": changed_head(PLAIN, (124, b"\xff" * 12)),
    "a size beyond the archive": changed_head(PLAIN, (124, octal(LARGE))),
    "a record without an end": pax(("path", "b")).replace(b"path=b", b"path:b"),
    "a name that no disk takes": pax(("path", "x" * 300)),
}


@pytest.mark.parametrize("head", GREEDY.values(), ids=list(GREEDY))
def test_an_archive_takes_no_more_than_it_has(tmp_path: Path, head: bytes) -> None:
    plain = head + b"x" * 512 + bytes(1024)
    (tmp_path / "archive").write_bytes(gzip.compress(plain))
    expected = Measured(hashlib.sha256(plain).hexdigest(), len(plain))

    with pytest.raises(RefResolutionError):
        unpack(tmp_path / "archive", tmp_path / "target", expected, ref="it", stop=Stop())

    assert sum(path.stat().st_size for path in (tmp_path / "target").rglob("*") if path.is_file()) <= len(plain)


DAMAGE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "cut off": (lambda content: content[:-20], "damaged"),
    "changed in the middle": (lambda content: content[:60] + bytes([content[60] ^ 1]) + content[61:], "damaged"),
    "empty": (lambda content: b"", "damaged"),
    "something else": (lambda content: b"<html>not found</html>", "damaged"),
    "followed by more": (lambda content: content + gzip.compress(b"more"), "larger than it should be"),
    "another archive": (lambda content: gzip.compress(gzip.decompress(content)[:-10240]), "damaged"),
}


@pytest.mark.parametrize(("change", "told"), DAMAGE.values(), ids=list(DAMAGE))
def test_an_archive_is_refused_that_is(tmp_path: Path, change: Callable[[bytes], bytes], told: str) -> None:
    build = write_build(tmp_path / "build", first="plan.json")
    packed = io.BytesIO()
    pack(build, packed, Stop())
    (tmp_path / "archive").write_bytes(change(packed.getvalue()))

    with pytest.raises(RefResolutionError, match=told) as caught:
        unpack(tmp_path / "archive", tmp_path / "target", measure(build, Stop()), ref="it", stop=Stop())

    assert caught.value.reason == "integrity"
