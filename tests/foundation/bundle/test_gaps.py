"""What a bundle names and nobody finds is told, and with strict it is an error."""

import logging
from pathlib import Path

import pytest

from amplifier_foundation import Bundle, BundleError, BundleRegistry, BundleValidationError, load_bundle

SOUND = """---
bundle: {name: sound}
skills: {anything: goes}
context: {include: [rules.md, "sound:more.md"]}
agents: {include: [scout, "sound:scout"], inline: {description: Needs no file.}}
---
See @sound:rules.md. And @sound:more.md, @notes.md, @user:x.md, @project:y.md.
"""
GAPS = {
    "misspelled section": (
        "bundle: {name: x}\ntolls: [{module: t}]\n",
        "section 'tolls' has no effect; did you mean 'tools'?",
    ),
    "agent": ("bundle: {name: x}\nagents: {include: [gone]}\n", "agent 'gone' has no file agents/gone.md"),
    "agent with namespace": (
        "bundle: {name: x}\nagents: {include: ['x:gone']}\n",
        "agent 'x:gone' has no file agents/gone.md",
    ),
    "context file": ("bundle: {name: x}\ncontext: {include: [gone.md]}\n", "context file 'gone.md' does not exist"),
    "context file with namespace": (
        "bundle: {name: x}\ncontext: {include: ['x:gone.md']}\n",
        "context file 'x:gone.md' does not exist",
    ),
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


async def load(path: Path, home: Path, *, strict: bool = False) -> Bundle:
    return await BundleRegistry(home, strict=strict).load(str(path))


@pytest.mark.parametrize("case", GAPS)
async def test_a_gap_is_a_warning_and_with_strict_an_error(
    tmp_path: Path, home: Path, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    text, told = GAPS[case]
    path = tmp_path / "x.yaml"
    path.write_text(text)

    with caplog.at_level(logging.WARNING):
        bundle = await load(path, home)
        await bundle.prepare(cache_dir=home / "cache")

    assert caplog.text.count(told) == 1
    strict = BundleRegistry(home, strict=True)
    for _ in range(2):
        with pytest.raises(BundleValidationError) as caught:
            await strict.load(str(path))
        assert told in str(caught.value)


async def test_a_mention_that_leads_to_nothing_is_told(
    tmp_path: Path, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "x.md"
    path.write_text("---\nbundle: {name: x}\n---\nSee @x:gone.md and @other:file.md.\n")

    bundle = await load(path, home)
    assert "mention '@x:gone.md' leads to nothing" in caplog.text
    assert "@other" not in caplog.text
    await bundle.prepare(cache_dir=home / "cache")
    assert "mention '@other:file.md.' belongs to a namespace that is not known" in caplog.text
    with pytest.raises(BundleValidationError, match=r"@x:gone\.md"):
        await bundle.prepare(strict=True, cache_dir=home / "cache")


async def test_a_gap_of_an_included_bundle_is_found_with_strict(tmp_path: Path, home: Path) -> None:
    (tmp_path / "part.yaml").write_text("bundle: {name: part}\nhook: [{module: h}]\n")
    path = tmp_path / "x.yaml"
    path.write_text("bundle: {name: x}\nincludes: [./part.yaml]\n")

    with pytest.raises(BundleError, match="did you mean 'hooks'"):
        await load(path, home, strict=True)


async def test_a_sound_bundle_is_not_remarked_on(tmp_path: Path, home: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("rules.md", "more.md"):
        (tmp_path / name).write_text("x")
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "scout.md").write_text("---\nmeta: {name: scout}\n---\nLook.")
    (tmp_path / "bundle.md").write_text(SOUND)

    bundle = await load(tmp_path / "bundle.md", home, strict=True)
    await bundle.prepare(strict=True, cache_dir=home / "cache")

    assert caplog.text == ""


async def test_a_file_without_a_bundle_section_says_so(
    tmp_path: Path, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "README.md").write_text("# Not a bundle\n")

    bundle = await load_bundle(tmp_path / "README.md")

    assert bundle.instruction == "# Not a bundle"
    assert f"{tmp_path / 'README.md'} has no section 'bundle:'" in caplog.text
