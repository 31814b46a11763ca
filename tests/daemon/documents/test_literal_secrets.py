"""Secrets in the texts of profiles: each is replaced by a reference, and all else stays where it is."""

from pathlib import Path, PurePosixPath

import pytest
import yaml

from amplifierd.identifiers import ProfileId
from amplifierd.profiles.documents.document import ProfileDocument, ReferenceBase
from amplifierd.profiles.documents.literal_secrets import conceal, conceal_document, find_literal_secrets
from amplifierd.profiles.documents.profile_reader import read_document

SECRET = "hunter-2-hunter"


def keep(secret: str) -> str:
    return f"AMPLIFIER_SECRET_{len(secret)}"


def read(text: str) -> ProfileDocument:
    base = ReferenceBase("team", PurePosixPath())
    return read_document(text, path=Path("base.md"), profile_id=ProfileId("team", "base"), base=base)


@pytest.mark.parametrize(
    "config",
    [
        f"{{size: 3, password: {SECRET}, colour: red}}",
        f"\n    password: {SECRET}  # mine\n    colour: red",
        f"\n    password: '{SECRET}'\n    colour: red",
        f"\n    password: &mine {SECRET}\n    token: *mine\n    colour: red",
        '\n    password: !!str "hunter-\\x32-hunter"\n    colour: red',
        "\n    password: |-\n      hunter-2-hunter\n    colour: red",
        "\n    password: >-\n\n      hunter-2-hunter\n\n    colour: red",
    ],
)
def test_the_text_of_a_profile_has_a_reference_and_every_line_stays_where_it_is(config: str) -> None:
    text = (
        "\ufeff---\nprofile: {name: base, version: '1', schema_version: 2}\ntools:\n"
        f"- module: tool-web\n  config: {config}\nhooks:\n- module: hooks-last\n---\nYou help.\n"
    )

    concealed = conceal_document(read(text), keep)

    assert SECRET not in concealed.text
    again = read(concealed.text)
    assert again.sections == concealed.sections
    assert again.sections["tools"][0]["config"]["password"].startswith("${AMPLIFIER_SECRET_")
    assert again.sections["tools"][0]["config"]["colour"] == "red"
    assert again.body == "You help."
    lines = concealed.text.splitlines()
    assert lines.index("- module: hooks-last") == text.splitlines().index("- module: hooks-last")
    assert again.issues == read(text).issues
    assert {issue.code for issue in again.issues} == {"literal-secret"}
    assert conceal_document(again, keep) is again


def test_a_text_of_several_lines_is_one_secret() -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEF\n-----END PRIVATE KEY-----\n"
    config = yaml.safe_dump({"private_key": key}, default_style="|").replace("\n", "\n    ")
    document = read(
        f"---\nprofile: {{name: base, version: '1'}}\ntools:\n- module: tool-web\n  config:\n    {config}\n---\n"
    )

    concealed = conceal_document(document, keep)

    assert "MIIE" not in concealed.text
    assert read(concealed.text).sections == concealed.sections


def test_an_agent_of_a_plan_has_no_secret_in_its_text_either() -> None:
    overlay = {"providers": [{"module": "provider-x", "config": {"api_key": SECRET}}]}
    plan = {"agents": {"helper": {**overlay, "content": f"---\n{yaml.safe_dump(overlay)}---\nYou help."}}}

    concealed = conceal(plan, keep)

    assert SECRET not in str(concealed)
    assert find_literal_secrets(concealed) == ["agents.helper.providers[0].config.api_key"]


def test_what_has_no_secret_is_the_very_same() -> None:
    plan = {"tools": [{"module": "tool-web", "config": {"api_key": "${KEY}", "token": "not-needed"}}]}

    assert conceal(plan, keep) is plan
