"""A profile's text: every rule about the file alone."""

from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from amplifierd.identifiers import ProfileId
from amplifierd.profiles.documents.document import ALL_AGENTS, DeclaredReference, ProfileDocument, ReferenceBase
from amplifierd.profiles.documents.profile_reader import read_document

BASE = ReferenceBase("team", PurePosixPath("profiles"))
HEADER = "profile:\n  name: base\n  version: 1.0.0\n  schema_version: 2\n"
SESSION = "session:\n  orchestrator:\n    module: loop-basic\n"


def read(front: str, body: str = "") -> ProfileDocument:
    return read_text(f"---\n{front}\n---\n{body}")


def read_text(text: str, **options: Any) -> ProfileDocument:
    return read_document(text, path=Path("base.md"), profile_id=ProfileId("team", "default"), base=BASE, **options)


def found(document: ProfileDocument) -> list[tuple[str, str, int | None, str]]:
    return [(issue.code, issue.severity, issue.line, issue.message) for issue in document.issues]


def test_a_complete_profile_has_no_issues_and_one_shape() -> None:
    document = read(
        HEADER
        + """session:
  orchestrator: loop-streaming
  context_manager: {module: context-simple, config: {max_tokens: 400000}}
  injection_budget_per_turn: null
  own: [1]
providers:
- {module: provider-x, source: git+https://example.org/r@v1, config: {a: 1}}
tools:
agents:
  expert: https://example.org/experts/code.md
  inline: {description: d, instruction: Do it}
context:
  docs: git+https://example.org/r@v1#subdirectory=docs
ui: {lines: 5}""",
        "\n# Instruction\n",
    )

    assert document.issues == ()
    assert document.profile_id == "team/base"
    assert document.body == "# Instruction"
    assert document.sections == {
        "session": {
            "orchestrator": {"module": "loop-streaming"},
            "context": {"module": "context-simple", "config": {"max_tokens": 400000}},
            "injection_budget_per_turn": None,
            "own": [1],
        },
        "providers": [{"module": "provider-x", "source": "git+https://example.org/r@v1", "config": {"a": 1}}],
        "tools": None,
        "agents": {
            "expert": "https://example.org/experts/code.md",
            "inline": {"description": "d", "instruction": "Do it"},
        },
        "context": {"docs": "git+https://example.org/r@v1#subdirectory=docs"},
        "ui": {"lines": 5},
    }


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("# Just text", "no-frontmatter", "Profile base.md has no YAML frontmatter"),
        ("", "no-frontmatter", "Profile base.md has no YAML frontmatter"),
        ("---\nprofile: {name: a}\n", "unclosed-frontmatter", "Profile base.md has unclosed frontmatter"),
        ("---\na: [1\n---\n", "invalid-yaml", "Invalid YAML in base.md: line 3, column 1"),
        ("---\n- a\n---\n", "frontmatter-not-mapping", "Frontmatter must be a YAML dictionary"),
        ("---\n---\n", "frontmatter-not-mapping", "Frontmatter must be a YAML dictionary"),
        ("---\nsession: {}\n---\n", "profile-section-missing", "No 'profile' section in frontmatter"),
        ("---\nprofile: base\n---\n", "profile-section-missing", "No 'profile' section in frontmatter"),
    ],
)
def test_a_file_that_is_no_profile_is_told_why(text: str, code: str, message: str) -> None:
    [issue] = read_text(text).issues

    assert (issue.code, issue.severity) == (code, "error")
    assert issue.message.startswith(message)


def test_dashes_inside_of_a_value_do_not_end_the_header() -> None:
    document = read(HEADER + 'ui:\n  line: "a --- b"\n  text: |\n    ---\n    more')

    assert document.issues == ()
    assert document.sections["ui"] == {"line": "a --- b", "text": "---\nmore\n"}


@pytest.mark.parametrize("bomb", ["a: &a [x]\nb: &b [*a, *a]\n" + "c: [" * 60 + "]" * 60, "x: " + "y" * 1_100_000])
def test_a_header_beyond_the_limits_is_refused(bomb: str) -> None:
    assert [issue.code for issue in read(bomb).issues] == ["invalid-yaml"]


@pytest.mark.parametrize(
    ("header", "code", "severity", "message"),
    [
        (
            "{version: '1', schema_version: 2, name: ../x}",
            "name-invalid",
            "error",
            "Invalid profile name '../x'. Name must",
        ),
        (
            "{version: '1', schema_version: 2, name: Base}",
            "name-invalid",
            "error",
            "contain only lowercase letters, numbers",
        ),
        ("{name: a, schema_version: 2}", "version-missing", "error", "Missing required fields (name, version)"),
        ("{name: a, version: 1.1, schema_version: 2}", "version-not-string", "warning", "is read as '1.1'"),
        ("{name: a, version: '1'}", "schema-version-missing", "warning", "2 is assumed"),
        (
            "{name: a, version: '1', schema_version: 1}",
            "schema-version-unsupported",
            "error",
            "schema_version 1 not supported. Only schema_version: 2 is accepted",
        ),
        ("{name: a, version: '1', schema_version: '2'}", "schema-version-unsupported", "error", "schema_version 2"),
        (
            "{name: a, version: '1', schema_version: 2, extends: [b]}",
            "wrong-type",
            "error",
            "profile.extends must be string",
        ),
        (
            "{name: a, version: '1', schema_version: 2, model: gpt}",
            "wrong-type",
            "error",
            "profile.model must be provider/",
        ),
        (
            "{name: a, version: [1], schema_version: 2}",
            "wrong-type",
            "error",
            "profile.version must be string, got list",
        ),
    ],
)
def test_the_metadata_is_checked(header: str, code: str, severity: str, message: str) -> None:
    [issue] = read(f"profile: {header}").issues

    assert (issue.code, issue.severity) == (code, severity)
    assert message in issue.message
    assert issue.line == 2


def test_a_profile_without_a_name_has_the_name_of_its_place() -> None:
    document = read("profile: {version: '1', schema_version: 2}")

    assert document.profile_id == "team/default"
    assert document.metadata["name"] == "default"


@pytest.mark.parametrize(
    ("section", "code", "severity", "line", "message"),
    [
        ("session: []", "wrong-type", "error", 6, "session must be mapping, got list"),
        (
            "session:\n  orchestrator: [x]",
            "wrong-type",
            "error",
            7,
            "session.orchestrator must be string or mapping, got list",
        ),
        ("session:\n  injection_size_limit: -1", "wrong-type", "error", 7, "must be integer ≥ 0 or null, got -1"),
        (
            "session:\n  injection_size_limit: true",
            "wrong-type",
            "error",
            7,
            "must be integer ≥ 0 or null, got boolean",
        ),
        ("session:\n  raw: 1", "wrong-type", "error", 7, "session.raw must be boolean, got integer"),
        ("tools: {module: tool-a}", "wrong-type", "error", 6, "tools must be list, got mapping"),
        ("tools:\n- tool-a", "wrong-type", "error", 7, "tools[0] must be mapping, got string"),
        ("tools:\n- {source: ./x}", "module-missing", "warning", 7, "Module entry at tools[0] has no 'module'"),
        (
            "tools:\n- {module: tool-a, config: [1]}",
            "wrong-type",
            "error",
            7,
            "tools[0].config must be mapping, got list",
        ),
        (
            "tools:\n- {module: tool-a, source: 1}",
            "wrong-type",
            "error",
            7,
            "tools[0].source must be string, got integer",
        ),
        (
            "tools:\n- {module: thing}",
            "mount-type-unknown",
            "error",
            7,
            "Could not determine mount type for module: thing",
        ),
        (
            "tools:\n- {module: hooks-a}",
            "mount-type-mismatch",
            "error",
            7,
            "Module 'hooks-a' belongs to 'hooks' but is listed under 'tools'",
        ),
        (
            "session: {context: {module: tool-a}}",
            "mount-type-mismatch",
            "error",
            6,
            "Module 'tool-a' belongs to 'tools' but is listed under 'context'",
        ),
        ("tools:\n- {module: tool-../x}", "module-invalid", "error", 7, "Invalid module ID 'tool-../x'"),
        ("tools:\n- {module: tool-a, source: 'ftp2:x y'}", "bad-ref", "error", 7, ""),
        ("tools:\n- {module: tool-a, source: 'git+https://h/r@--x'}", "bad-ref", "error", 7, ""),
        ("tools: [{module: tool-a}, {module: tool-a}]", "duplicate-module", "warning", 6, "more than once"),
        ("agents: 3", "wrong-type", "error", 6, "agents must be mapping, list, all or none, got integer"),
        ("agents: {../x: ./a.md}", "name-invalid", "error", 6, "Invalid name '../x' in agents"),
        ("context: {docs: {a: 1}}", "wrong-type", "error", 6, "context[docs] must be string, got mapping"),
        ("ui: 3", "wrong-type", "error", 6, "ui must be mapping, got integer"),
        ("exclude: all", "wrong-type", "error", 6, "exclude must be mapping, got string"),
        ("skills: [a]", "unknown-key", "warning", 6, "Unknown key 'skills'"),
    ],
)
def test_every_section_is_checked_and_the_place_named(
    section: str, code: str, severity: str, line: int, message: str
) -> None:
    [issue] = read(f"{HEADER}{section}").issues

    assert (issue.code, issue.severity, issue.line, issue.file) == (code, severity, line, Path("base.md"))
    assert message in issue.message


def test_an_unknown_key_of_the_metadata_is_reported() -> None:
    document = read("profile: {name: base, version: 1.0.0, schema_version: 2, extend: foundation/base}\n")

    [issue] = document.issues
    assert (issue.code, issue.severity, issue.message) == ("unknown-key", "warning", "Unknown key 'profile.extend'")


def test_all_problems_are_reported_at_once() -> None:
    document = read("profile: {name: X, schema_version: 3}\ntools: {}\nhooks:\n- {module: tool-a}\nagents: 1")

    assert [issue.code for issue in document.issues] == [
        "name-invalid",
        "version-missing",
        "schema-version-unsupported",
        "wrong-type",
        "mount-type-mismatch",
        "wrong-type",
    ]


def test_a_second_entry_of_a_module_adds_to_the_first() -> None:
    document = read(
        HEADER
        + """tools:
- {module: tool-a, source: ./a, config: {x: 1, l: [1]}}
- {module: tool-a, config: {l: [2]}}
providers:
- {module: provider-a}
- {module: provider-a, instance_id: two}"""
    )

    assert document.sections["tools"] == [{"module": "tool-a", "source": "./a", "config": {"x": 1, "l": [2]}}]
    assert len(document.sections["providers"]) == 2


def test_references_remember_where_they_count_from() -> None:
    document = read(HEADER + "tools:\n- {module: tool-a, source: ./a}\nagents: {x: ../x.md}\ncontext: {d: ./d}")

    references = [
        document.sections["tools"][0]["source"],
        document.sections["agents"]["x"],
        document.sections["context"]["d"],
    ]
    assert references == ["./a", "../x.md", "./d"]
    assert all(isinstance(reference, DeclaredReference) and reference.base == BASE for reference in references)


def test_lists_of_agents_and_contexts_are_named_after_their_files() -> None:
    document = read(
        HEADER
        + """agents:
- git+https://example.org/r@v1#experts/code.md
- ./agents/reviewer.md
context:
- git+https://example.org/r@v1#subdirectory=docs/guides
- git+https://example.org/handbook@v1
- ./notes"""
    )

    assert document.issues == ()
    assert list(document.sections["agents"]) == ["code", "reviewer"]
    assert list(document.sections["context"]) == ["guides", "handbook", "notes"]


@pytest.mark.parametrize(("word", "expected"), [("all", [ALL_AGENTS]), ("none", [])])
def test_all_and_none_replace_what_is_inherited(word: str, expected: list[str]) -> None:
    document = read(HEADER + f"agents: {word}")

    assert list(document.sections["agents"]) == expected
    assert document.replaced == {"agents"}


def test_the_older_name_of_contexts_is_merged_in() -> None:
    document = read(HEADER + "contexts: {a: ./old, b: ./b}\ncontext: {a: ./new}")

    assert document.sections["context"] == {"a": "./new", "b": "./b"}


def test_the_hash_does_not_depend_on_line_ends() -> None:
    text = f"---\n{HEADER}---\nBody\n"

    assert read_text(text).profile_hash == read_text(text.replace("\n", "\r\n")).profile_hash
    assert read_text(text).profile_hash != read_text(text + "x").profile_hash


def test_a_byte_order_mark_and_other_line_ends_are_read() -> None:
    document = read_text("\ufeff" + f"---\n{HEADER}---\nBody\n".replace("\n", "\r\n"))

    assert document.issues == ()
    assert document.body == "Body"


def test_an_overlay_needs_no_metadata() -> None:
    document = read_text("---\ntools:\n- {module: tool-a, config: {x: 2}}\n---\n", is_overlay=True)

    assert document.issues == ()
    assert document.sections["tools"][0]["config"] == {"x": 2}


def test_two_thousand_unknown_keys_are_reported_each_with_its_line() -> None:
    keys = "".join(f"unknown_{number}: 1\n" for number in range(2000))
    text = f"---\nprofile:\n  name: a\n  version: 1.0.0\n  schema_version: 2\n{keys}---\n"

    document = read_document(
        text, path=Path("a.md"), profile_id=ProfileId("c", "a"), base=ReferenceBase("c", PurePosixPath())
    )

    assert [issue.line for issue in document.issues] == list(range(6, 2006))


@pytest.mark.parametrize(
    ("config", "is_told"),
    [
        ("{api_key: k3y-0f-somebody}", True),
        ("{headers: [{Authorization: 'Bearer sk-proj-0123456789abcdefABCDEF0123456789'}]}", True),
        ("{api_key: '${MY_KEY}'}", False),
        ("{api_key: not-needed, max_tokens: 4096, token_count: '12345678'}", False),
        ("{prompt: 'Never show your api key'}", False),
    ],
)
def test_a_secret_in_a_configuration_is_told_where_it_stands(config: str, is_told: bool) -> None:
    document = read(
        f"profile: {{name: base, version: '1'}}\nproviders:\n- module: provider-openai\n  config: {config}\n"
    )

    found = [issue for issue in document.issues if issue.code == "literal-secret"]
    assert bool(found) is is_told
    assert all(issue.severity == "warning" and issue.line == 5 for issue in found)
