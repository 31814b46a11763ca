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


def test_a_password_from_elsewhere_is_used_where_the_address_has_none() -> None:
    bare, own = StoreAddress.parse("postgresql://u@h/db"), StoreAddress.parse("postgresql://u:own@h/db")

    assert bare.with_password("o&ther").password == "o&ther"
    assert (own.with_password("other").password, StoreAddress().with_password("x").is_files) == ("own", True)


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
