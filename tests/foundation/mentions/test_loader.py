"""Loading what a text mentions."""

from pathlib import Path

import pytest

from amplifier_foundation import (
    BaseMentionResolver,
    Bundle,
    ContentDeduplicator,
    expand_mentions_in_instruction,
    load_mentions,
)
from amplifier_foundation.mentions import format_context_block, format_directory_listing


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path.resolve()


@pytest.fixture
def resolver(folder: Path) -> BaseMentionResolver:
    return BaseMentionResolver(base_path=folder)


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")


class TestResolver:
    def test_a_path_is_found_below_the_base_folder_with_or_without_its_suffix(
        self, folder: Path, resolver: BaseMentionResolver
    ) -> None:
        write(folder, notes="x")

        assert resolver.resolve("@notes.md") == folder / "notes.md"
        assert resolver.resolve("@notes") == folder / "notes.md"
        assert resolver.resolve("@missing") is None
        assert resolver.resolve("notes.md") is None

    def test_a_sentences_full_stop_is_not_part_of_the_name(self, folder: Path, resolver: BaseMentionResolver) -> None:
        write(folder, notes="x")

        assert resolver.resolve("@notes.md.") == folder / "notes.md"
        assert resolver.resolve("@notes.md:") == folder / "notes.md"

    def test_an_absolute_path_is_taken_as_it_is(self, folder: Path, resolver: BaseMentionResolver) -> None:
        write(folder, notes="x")

        assert resolver.resolve(f"@{folder}/notes.md") == folder / "notes.md"

    @pytest.mark.parametrize("mention", ["@~", "@~5", "@~nouser/x", "@" + "a" * 5000, "@unknown:x"])
    def test_what_cannot_be_found_is_none_never_an_error(self, resolver: BaseMentionResolver, mention: str) -> None:
        assert resolver.resolve(mention) is None

    def test_a_namespace_leads_into_its_bundle(self, folder: Path, resolver: BaseMentionResolver) -> None:
        (folder / "context").mkdir()
        write(folder / "context", a="text")
        named = folder / "elsewhere.md"
        named.write_text("named", encoding="utf-8")
        resolver.register_bundle("b", Bundle(name="b", base_path=folder, context={"key": named}))

        assert resolver.resolve("@b:context/a.md") == folder / "context" / "a.md"
        assert resolver.resolve("@b:key") == named
        assert resolver.resolve("@b:") == folder
        assert resolver.resolve("@b:context/a") is None

    def test_another_folder_is_tried_first_when_given(self, folder: Path, resolver: BaseMentionResolver) -> None:
        (folder / "in").mkdir()
        write(folder, a="outer")
        write(folder / "in", a="inner")

        assert resolver.resolve("@a.md", relative_to=folder / "in") == folder / "in" / "a.md"
        assert resolver.resolve("@a.md", relative_to=folder / "none") == folder / "a.md"


class TestLoading:
    async def test_each_mention_has_its_result_in_order(self, folder: Path, resolver: BaseMentionResolver) -> None:
        write(folder, a="A")

        a, missing, listing = await load_mentions(f"@a.md @missing.md @{folder}", resolver)

        assert (a.content, a.found, a.failure_reason) == ("A", True, None)
        assert (missing.found, missing.failure_reason, missing.error) == (False, "not_found", None)
        assert listing.is_directory
        assert listing.content == f"Directory: {folder}\n\n  FILE a.md"

    async def test_files_mention_files_three_levels_down_and_no_further(
        self, folder: Path, resolver: BaseMentionResolver
    ) -> None:
        write(folder, a="@b.md", b="@c.md", c="@d.md", d="@e.md", e="end")
        files = ContentDeduplicator()

        results = await load_mentions("@a.md", resolver, files)

        assert [result.mention for result in results] == ["@a.md"]
        assert [file.paths[0].name for file in files.get_unique_files()] == ["a.md", "b.md", "c.md", "d.md"]

    async def test_a_cycle_ends_where_the_content_is_known(self, folder: Path, resolver: BaseMentionResolver) -> None:
        write(folder, a="to @b.md", b="back to @a.md")
        files = ContentDeduplicator()

        first, again = await load_mentions("@a.md @b.md", resolver, files, max_depth=100)

        assert first.found
        assert (again.found, again.content, again.failure_reason) == (False, None, None)
        assert len(files.get_unique_files()) == 2

    async def test_equal_content_is_one_file_with_two_paths(self, folder: Path, resolver: BaseMentionResolver) -> None:
        write(folder, a="same", b="same")
        files = ContentDeduplicator()

        await load_mentions("@a.md @b.md", resolver, files)

        [file] = files.get_unique_files()
        assert [path.name for path in file.paths] == ["a.md", "b.md"]
        assert files.get_known_hashes() == {file.content_hash}

    async def test_what_cannot_be_read_is_a_reason_not_an_error(
        self, folder: Path, resolver: BaseMentionResolver
    ) -> None:
        (folder / "binary.md").write_bytes(b"\xff\xfe\x00")

        [result] = await load_mentions("@binary.md", resolver)

        assert (result.found, result.failure_reason) == (False, "binary")

    async def test_a_resolver_with_a_policy_says_why(self) -> None:
        class Strict:
            def resolve(self, mention: str) -> Path | None:
                return None

            def failure_reason(self, mention: str) -> str:
                return "path_traversal_rejected"

        [result] = await load_mentions("@../x", Strict())

        assert result.failure_reason == "path_traversal_rejected"

    async def test_a_resolver_that_fails_is_a_reason_too(self) -> None:
        class Broken:
            def resolve(self, mention: str) -> Path | None:
                raise RuntimeError("no")

        [result] = await load_mentions("@x", Broken())

        assert result.failure_reason == "unknown"

    async def test_mentions_inside_a_file_belong_to_the_base_folder_unless_told_otherwise(
        self, folder: Path, resolver: BaseMentionResolver
    ) -> None:
        (folder / "in").mkdir()
        write(folder, n="outer")
        write(folder / "in", a="@n.md", n="inner")
        plain, nested = ContentDeduplicator(), ContentDeduplicator()

        await load_mentions("@in/a.md", resolver, plain)
        await load_mentions("@in/a.md", resolver, nested, nested_relative=True)

        assert [file.content for file in plain.get_unique_files()] == ["@n.md", "outer"]
        assert [file.content for file in nested.get_unique_files()] == ["@n.md", "inner"]

    async def test_limits_hold_for_nested_files_too(self, folder: Path, resolver: BaseMentionResolver) -> None:
        write(folder, a="@b.md @c.md", b="x" * 50, c="y" * 10, big="z" * 200)
        by_count, by_size = ContentDeduplicator(), ContentDeduplicator()

        counted = await load_mentions("@a.md @big.md", resolver, by_count, max_files=2)
        sized = await load_mentions("@a.md @big.md", resolver, by_size, max_total_bytes=30, max_file_bytes=100)

        assert [file.paths[0].name for file in by_count.get_unique_files()] == ["a.md", "b.md"]
        assert [result.failure_reason for result in counted] == [None, "limit_reached"]
        assert [file.paths[0].name for file in by_size.get_unique_files()] == ["a.md", "c.md"]
        assert [result.failure_reason for result in sized] == [None, "too_large"]

    async def test_a_listing_is_cut(self, folder: Path, resolver: BaseMentionResolver) -> None:
        for number in range(5):
            write(folder, **{f"n{number}": "x"})

        [result] = await load_mentions(f"@{folder}", resolver, max_entries=2)

        assert result.content == f"Directory: {folder}\n\n  FILE n0.md\n  FILE n1.md\n  ... 3 more"


class TestFormatting:
    def test_blocks_name_paths_and_the_mentions_that_led_there(self, folder: Path) -> None:
        write(folder, a="A", b="A", c="C")
        files = ContentDeduplicator()
        for name in "abc":
            files.add_file(folder / f"{name}.md", "A" if name in "ab" else "C")

        block = format_context_block(files, {"@a": folder / "a.md", "@x": folder / "a.md"})

        assert block == (
            f'<context_file paths="@a → {folder}/a.md, @x → {folder}/a.md, {folder}/b.md">\nA\n</context_file>\n\n'
            f'<context_file paths="{folder}/c.md">\nC\n</context_file>'
        )
        assert format_context_block(ContentDeduplicator()) == ""

    def test_a_folder_is_listed_folders_first(self, folder: Path) -> None:
        (folder / "Zed").mkdir()
        (folder / "alpha").mkdir()
        write(folder, B="", a="")

        assert format_directory_listing(folder).splitlines()[2:] == [
            "  DIR  alpha",
            "  DIR  Zed",
            "  FILE a.md",
            "  FILE B.md",
        ]
        assert format_directory_listing(folder / "Zed").endswith("\n\n  (empty directory)")
        with pytest.raises(ValueError, match=r"a\.md"):
            format_directory_listing(folder / "a.md")

    async def test_an_instruction_comes_after_the_files_it_mentions(
        self, folder: Path, resolver: BaseMentionResolver
    ) -> None:
        write(folder, a="A")

        expanded = await expand_mentions_in_instruction("Use @a.md", resolver=resolver)

        assert expanded == f'<context_file paths="@a.md → {folder}/a.md">\nA\n</context_file>\n\nUse @a.md'

    @pytest.mark.parametrize("instruction", ["", "nothing here", "only @missing.md"])
    async def test_an_instruction_with_nothing_to_show_stays_as_it_is(
        self, resolver: BaseMentionResolver, instruction: str
    ) -> None:
        assert await expand_mentions_in_instruction(instruction, resolver=resolver) == instruction


async def test_a_folder_is_listed_for_each_name_it_is_mentioned_by(folder: Path, resolver: BaseMentionResolver) -> None:
    (folder / "docs").mkdir()

    results = await load_mentions("@docs and @docs/", resolver)

    assert [result.content for result in results] == [format_directory_listing(folder / "docs")] * 2


async def test_a_resolver_whose_reason_is_no_text_gave_none(folder: Path) -> None:
    class Resolver:
        def resolve(self, mention: str) -> Path | None:
            return None

        def failure_reason(self, mention: str) -> object:
            return object()

    (result,) = await load_mentions("@gone.md", Resolver())

    assert result.failure_reason == "not_found"
