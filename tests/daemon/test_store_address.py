"""Where sessions are kept, and that no password of it is ever shown."""

from __future__ import annotations

import pytest

from amplifierd.exceptions import SettingsError
from amplifierd.settings import build_settings
from amplifierd.store_address import StoreAddress

SECRET = "p%40ss-word"


@pytest.mark.parametrize(
    ("text", "shown", "password", "schema"),
    [
        ("files", "files", None, "amplifier"),
        ("postgresql://h/db", "postgresql://h/db", None, "amplifier"),
        (f"postgres://u:{SECRET}@h1:1,h2:2/db", "postgres://u:***@h1:1,h2:2/db", "p@ss-word", "amplifier"),
        (
            f"postgresql://h/db?password={SECRET}&schema=a_1",
            "postgresql://h/db?password=***&schema=a_1",
            "p@ss-word",
            "a_1",
        ),
        ("postgresql:///db?host=/run/postgresql", "postgresql:///db?host=/run/postgresql", None, "amplifier"),
    ],
)
def test_an_address_is_shown_without_its_password(text: str, shown: str, password: str | None, schema: str) -> None:
    settings = build_settings({"store": text})
    address = settings.store

    assert (str(address), address.password, address.schema) == (shown, password, schema)
    assert settings.model_dump(mode="json")["store"] == shown
    assert "ss-word" not in f"{address!r} {settings!r} {settings.model_dump_json()}"
    assert "schema" not in address.conninfo
    assert StoreAddress.parse(text) == address


def test_a_password_comes_from_the_usual_variable_or_the_one_that_the_address_names() -> None:
    known = {"PGPASSWORD": "us&ual", "DB": "na/med"}
    bare, own = StoreAddress.parse("postgresql://u@h/db"), StoreAddress.parse("postgresql://u:own@h/db")
    named = StoreAddress.parse("postgresql://u:${DB}@h1,h2/db?schema=x")

    assert bare.resolved(known.get).password == "us&ual"
    assert (own.resolved(known.get), StoreAddress().resolved(known.get)) == (own, StoreAddress())
    resolved = named.resolved(known.get)
    assert (resolved.password, resolved.schema, str(resolved)) == (
        "na/med",
        "x",
        "postgresql://u@h1,h2/db?schema=x&password=***",
    )
    assert (bare.resolved({}.get), named.is_reference, own.is_reference) == (bare, True, False)
    with pytest.raises(SettingsError, match="DB"):
        named.resolved({}.get)


@pytest.mark.parametrize(
    "text",
    [
        f"mysql://u:{SECRET}@h/db",
        f"postgresql://u:{SECRET}@h/db?schema=A;DROP",
        f"postgresql://u:{SECRET}@[h/db",
        "postgresql://u:***@h/db",
        "",
        3,
    ],
)
def test_what_is_no_address_is_refused_without_showing_it(text: object) -> None:
    with pytest.raises(SettingsError) as refused:
        build_settings({"store": text})

    assert "store" in str(refused.value)
    assert "ss-word" not in str(refused.value)
