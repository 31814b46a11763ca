"""The rules that macOS is given."""

from pathlib import Path

from amplifier_kit.sandbox.availability import Seatbelt, profile
from amplifier_kit.sandbox.limits import Confinement


def test_without_permissions_only_harmless_devices_are_writable_and_nothing_is_reachable() -> None:
    rules = profile(Confinement(Path("/srv"), hidden=(Path("/secret/.ssh"),))).splitlines()

    assert rules[:3] == ["(version 1)", "(allow default)", "(deny file-write*)"]
    assert [rule for rule in rules if rule.startswith("(allow file-write")] == [rules[3]]
    assert "/dev/null" in rules[3]
    assert '(deny file-read* file-write* (subpath "/secret/.ssh"))' in rules
    assert rules[-1] == "(deny network*)"


def test_what_is_denied_comes_after_what_is_writable() -> None:
    work, kept, secret = Path("/srv"), Path("/srv/kept"), Path("/srv/secret")
    rules = profile(Confinement(work, writable=(work,), read_only=(kept,), hidden=(secret,), has_network=True))

    assert rules.index('(subpath "/srv")') < rules.index('(deny file-write* (subpath "/srv/kept"))')
    assert rules.index('(subpath "/srv/kept")') < rules.index('(subpath "/srv/secret")')
    assert "network" not in rules


def test_a_name_cannot_write_rules_of_its_own() -> None:
    path = Path('/srv/a" ) (allow file-write* (subpath "/")) \\')

    assert '"/srv/a\\" ) (allow file-write* (subpath \\"/\\")) \\\\"' in profile(Confinement(path, writable=(path,)))


def test_the_rules_stand_before_the_program() -> None:
    enclosure = Seatbelt().enclose(["ls"], Confinement(Path("/srv")), {"A": "1"})

    assert enclosure.arguments == ["/usr/bin/sandbox-exec", "-p", profile(Confinement(Path("/srv"))), "ls"]
    assert enclosure.environment == {"A": "1"}
