"""The graph of a bundle repository, and the texts that it is made of."""

from pathlib import Path

import pytest

from amplifier_foundation.bundle_docs import (
    bundle_repo_dot,
    color_tier,
    estimate_tokens,
    extract_delegation_targets,
    extract_mentions,
    parse_frontmatter,
    resolve_local_mention,
)
from amplifier_foundation.bundle_docs.tool_schema import estimate_module_tool_tokens
from amplifier_foundation.exceptions import BundleLoadError

NOTES = """
WORD = "notes"

class Notes:
    name = WORD
    input_schema = {"type": "object"}

    @property
    def description(self):
        return "Keeps notes."

    async def execute(self, input): ...
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    files = {
        "bundle.md": (
            "---\nbundle: {name: team}\nincludes: [{bundle: team:behaviors/notes}]\n"
            "context: {include: [team:context/rules.md]}\n---\nAsk team:scout. See @team:context/rules.md\n"
        ),
        "behaviors/notes.yaml": (
            "bundle: {name: notes}\ntools: [{module: tool-notes, source: ../modules/tool-notes}]\n"
            "agents: {include: [team:scout]}\n"
        ),
        "agents/scout.md": "---\nmeta: {name: scout, description: Looks}\n---\nLook, then ask `team:writer`.\n",
        "agents/writer.md": "---\nmeta: {name: writer}\n---\nWrite.\n",
        "bundles/small.md": "---\nbundle: {name: small}\nincludes: [../bundle.md]\n---\n",
        "providers/fast.yaml": "bundle: {name: fast}\n",
        "experiments/odd.md": "---\nbundle: [\n---\n",
        "context/rules.md": "x" * 2800,
        "modules/tool-notes/amplifier_module_tool_notes/__init__.py": NOTES,
        ".git/context/none.md": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_repository_is_a_graph_of_what_it_has_and_what_names_what(repository: Path) -> None:
    dot = bundle_repo_dot(repository)

    assert dot == bundle_repo_dot(str(repository))
    assert [line.split()[1] for line in dot.splitlines() if "subgraph" in line] == [
        "cluster_bundle",
        "cluster_behavior",
        "cluster_agent",
        "cluster_module",
        "cluster_provider",
        "cluster_experiment",
        "cluster_context",
    ]
    assert '"context/rules.md" [label="context/rules.md\\n~700 tokens", fillcolor="#fff9c4"];' in dot
    edges = [line.strip().rstrip(";") for line in dot.splitlines() if "->" in line]
    assert edges == [
        '"agents/scout.md" -> "agents/writer.md" [label="agent"]',
        '"behaviors/notes.yaml" -> "agents/scout.md" [label="agent"]',
        '"behaviors/notes.yaml" -> "modules/tool-notes" [label="module"]',
        '"bundle.md" -> "behaviors/notes.yaml" [label="includes"]',
        '"bundle.md" -> "context/rules.md" [label="context"]',
        '"bundle.md" -> "context/rules.md" [label="mentions"]',
        '"bundles/small.md" -> "bundle.md" [label="includes"]',
    ]


def test_texts_are_counted_and_coloured_by_their_kind() -> None:
    assert estimate_tokens("12345678") == 2
    tiers = [color_tier(tokens, "context") for tokens in (0, 501, 1501, 4001)]
    assert len(set(tiers)) == 4
    with pytest.raises(KeyError):
        color_tier(1, "poetry")


def test_the_tokens_of_a_tool_are_those_of_what_a_model_is_shown(repository: Path) -> None:
    schema = '{"type": "object"}'
    expected = sum(map(estimate_tokens, ("notes", "Keeps notes.", schema)))

    assert estimate_module_tool_tokens(repository / "modules/tool-notes") == expected
    assert estimate_module_tool_tokens(repository / "nowhere") == 0


def test_front_matter_is_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("\ufeff---\nbundle: {name: a}\n---\nHello.\n")
    (tmp_path / "b.yaml").write_text("bundle: {name: b}\n")
    (tmp_path / "c.yaml").write_text("- 1\n")

    assert parse_frontmatter(tmp_path / "a.md") == ({"bundle": {"name": "a"}}, "Hello.")
    assert parse_frontmatter(tmp_path / "b.yaml") == ({"bundle": {"name": "b"}}, "")
    with pytest.raises(BundleLoadError):
        parse_frontmatter(tmp_path / "c.yaml")


def test_mentions_and_agents_are_found_in_prose() -> None:
    text = "@team:a.md `@team:no.md` @file.md @team:a.md team:scout, team:agents/x team:x.md https://host team:scout"

    assert extract_mentions(text) == ["@team:a.md"]
    assert extract_delegation_targets(text) == ["team:scout"]


def test_a_mention_leads_to_a_file_of_the_repository_only(repository: Path) -> None:
    assert resolve_local_mention("@team:context/rules", repository) == repository / "context/rules.md"
    assert resolve_local_mention("@team:behaviors/notes", repository) == repository / "behaviors/notes.yaml"
    assert resolve_local_mention("@team:../outside", repository) is None
    assert resolve_local_mention("@team:", repository) is None
