"""The profiles that come with the product are faultless, and everything they name is there."""

import logging
import re
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import AmplifierSession
from amplifier_foundation.io import parse_frontmatter
from amplifierd.profiles.builds.plan_generation import agent_from_text
from amplifierd.sessions.conversation.mentions import ProfileMentionResolver, load_mentioned

MODULE_SECTIONS = ("providers", "tools", "hooks")
MENTION = re.compile(r"(?<![\w.])@([a-z]+):(\S+)")


def modules(sections: Any) -> list[str]:
    members = [sections["session"][member]["module"] for member in ("orchestrator", "context")]
    return members + [entry["module"] for section in MODULE_SECTIONS for entry in sections[section]]


def test_the_collection_has_these_profiles_and_nothing_is_wrong_with_its_files(shipped: Any) -> None:
    assert sorted(shipped.profiles) == ["base", "coding", "foundation", "offline", "research"]
    assert shipped.found.issues == ()


def test_a_profile_reads_without_any_issue(shipped: Any, name: str) -> None:
    document = shipped.profiles[name]

    assert document.issues == ()
    assert document.metadata["schema_version"] == 2
    assert re.fullmatch(r"\d+\.\d+\.\d+", document.metadata["version"])
    assert document.metadata["description"]
    assert document.body


def test_a_profile_merges_with_its_ancestors_without_any_issue(shipped: Any, name: str) -> None:
    issues = [issue.code for issue in shipped.merged(name).issues]

    assert issues == (["providers-missing"] if name == "foundation" else [])


@pytest.mark.parametrize(
    ("name", "chain"),
    [
        ("base", ["foundation"]),
        ("offline", ["foundation"]),
        ("coding", ["foundation", "base"]),
        ("research", ["foundation", "base"]),
    ],
)
def test_every_profile_descends_from_the_common_parent(shipped: Any, name: str, chain: list[str]) -> None:
    assert [ancestor.profile_id.name for ancestor in shipped.merged(name).ancestors] == chain


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "base",
            "loop-streaming context-simple provider-anthropic provider-openai "
            "tool-filesystem tool-search tool-todo tool-web hooks-redaction hooks-approval",
        ),
        (
            "offline",
            "loop-streaming context-simple provider-mock tool-filesystem tool-search tool-todo hooks-redaction",
        ),
        (
            "coding",
            "loop-streaming context-simple provider-anthropic provider-openai tool-filesystem tool-search tool-todo "
            "tool-web tool-bash tool-delegate tool-mode tool-skills hooks-redaction hooks-approval hooks-mode "
            "hooks-routing",
        ),
        (
            "research",
            "loop-streaming context-simple provider-anthropic provider-openai "
            "tool-filesystem tool-search tool-todo tool-web tool-delegate hooks-redaction hooks-approval",
        ),
    ],
)
def test_a_profile_has_the_modules_of_its_purpose(shipped: Any, name: str, expected: str) -> None:
    assert modules(shipped.merged(name).sections) == expected.split()


def test_modules_are_those_of_the_distribution(shipped: Any, name: str) -> None:
    sections = shipped.merged(name).sections
    entries = [sections["session"]["orchestrator"], sections["session"]["context"]]
    entries += [entry for section in MODULE_SECTIONS for entry in sections[section]]

    assert [entry["module"] for entry in entries if "source" in entry] == []


def test_every_agent_and_context_that_a_profile_names_is_in_the_collection(shipped: Any, name: str) -> None:
    sections = shipped.merged(name).sections
    named = [*(sections.get("agents") or {}).values(), *(sections.get("context") or {}).values()]

    places = [(shipped.root / reference.base.directory / reference).resolve() for reference in named]

    assert [place for place in places if not place.exists() or not place.is_relative_to(shipped.root.resolve())] == []


def test_an_agent_has_a_file_under_its_own_name(shipped: Any, name: str) -> None:
    agents = shipped.merged(name).sections.get("agents") or {}

    assert all(Path(reference).stem == agent for agent, reference in agents.items())


def test_a_profile_that_can_delegate_has_agents_and_the_others_have_none(shipped: Any, name: str) -> None:
    sections = shipped.merged(name).sections

    assert bool(sections.get("agents")) == ("tool-delegate" in modules(sections))


def test_every_agent_is_used_and_says_when_to_hand_it_a_task(shipped: Any) -> None:
    files = {path.stem: path for path in (shipped.root / "agents").glob("*.md")}
    used = {agent for profile in shipped.profiles for agent in shipped.merged(profile).sections.get("agents") or ()}

    assert used == set(files)
    for agent, path in files.items():
        entry = agent_from_text(agent, path.read_text(), "")
        assert parse_frontmatter(path.read_text())[0]["meta"]["name"] == agent
        assert "Give it" in entry["description"]
        assert len(entry["system"]["instruction"]) > 500


def test_agents_adjust_only_modules_that_their_profiles_have(shipped: Any, name: str) -> None:
    sections = shipped.merged(name).sections
    for agent, reference in (sections.get("agents") or {}).items():
        text = (shipped.root / reference.base.directory / reference).read_text()
        entry = agent_from_text(agent, text, "")

        assert {tool["module"] for tool in entry.get("tools", ())} <= set(modules(sections))


async def test_every_mention_in_a_body_and_below_it_leads_to_a_file(shipped: Any, name: str, tmp_path: Path) -> None:
    resolver = ProfileMentionResolver(
        contexts_dir=tmp_path, collection_roots={"foundation": shipped.root}, working_dir=tmp_path
    )

    loaded = await load_mentioned(shipped.merged(name).body, resolver)

    assert loaded.unresolved == ()
    titles = [message["content"].partition("\n\n")[2].partition("\n")[0] for message in loaded.messages]
    assert titles[:3] == ["# How you work", "# Principles", "# Working with tools"]


def test_every_context_file_is_mentioned_somewhere(shipped: Any) -> None:
    texts = [path.read_text() for path in shipped.root.rglob("*.md") if path.name != "README.md"]
    mentioned = {path for text in texts for collection, path in MENTION.findall(text) if collection == "foundation"}
    files = {path.relative_to(shipped.root).as_posix() for path in (shipped.root / "context").rglob("*.md")}

    assert mentioned == files


def test_the_readme_names_every_file(shipped: Any) -> None:
    linked = set(re.findall(r"\]\(([^)]+)\)", (shipped.root / "README.md").read_text()))

    files = {path.relative_to(shipped.root).as_posix() for path in shipped.root.rglob("*.md")}
    assert linked == files - {"README.md"}


@pytest.mark.usefixtures("keys")
async def test_modules_know_every_configuration_key_they_are_given(
    shipped: Any, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    sections = shipped.merged(name).sections
    plan = {key: sections[key] for key in ("session", "providers", "tools", "hooks")}

    with caplog.at_level(logging.WARNING):
        async with AmplifierSession(plan) as session:
            failures = session.status.load_failures

    assert failures == []
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.usefixtures("keys")
async def test_a_key_that_a_module_does_not_know_would_be_noticed(
    shipped: Any, caplog: pytest.LogCaptureFixture
) -> None:
    sections = shipped.merged("offline").sections
    providers = [{**sections["providers"][0], "config": {"mood": "agent"}}]

    with caplog.at_level(logging.WARNING):
        async with AmplifierSession({"session": sections["session"], "providers": providers}):
            pass

    assert "mood" in caplog.text
