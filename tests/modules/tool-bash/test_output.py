"""What a command prints: bounded, readable, and exact about what is missing."""

import tracemalloc
from typing import Any

import pytest


async def test_50_million_bytes_take_less_than_10_mb_and_are_counted(shell: Any) -> None:
    tracemalloc.start()
    try:
        output = await shell.output("yes | head -c 50000000")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 10_000_000
    assert (output["truncated"], output["stdout_total_bytes"], output["stderr_total_bytes"]) == (True, 50_000_000, 0)


async def test_a_long_output_keeps_whole_lines_of_its_head_and_tail(mount_shell: Any) -> None:
    shell = await mount_shell(max_output_bytes=1000)

    output = await shell.output("seq 10000")

    before, _, after = output["stdout"].partition("[...OUTPUT TRUNCATED...]")
    head, tail = before.split(), after.splitlines()[2:]
    assert head == [str(number) for number in range(1, len(head) + 1)]
    assert tail == [str(number) for number in range(10001 - len(tail), 10001)]
    assert len("\n".join(head)) <= 400
    assert len("\n".join(tail)) <= 400
    facts = after.splitlines()[0]
    assert f"first {len(head)} and last {len(tail)} of 10000 lines" in facts
    assert "48894 bytes in total, limit 1000 bytes" in facts


async def test_an_output_without_lines_is_cut_between_characters(mount_shell: Any) -> None:
    shell = await mount_shell(max_output_bytes=1000)

    output = await shell.output("printf '€%.0s' {1..2000}")

    head, _, tail = output["stdout"].partition("[...OUTPUT TRUNCATED (byte-level)...]")
    assert head.strip() == "€" * 133
    assert tail.splitlines()[1] == "€" * 133
    assert output["stdout_total_bytes"] == 6000


async def test_an_output_at_the_limit_is_complete(mount_shell: Any) -> None:
    shell = await mount_shell(max_output_bytes=1000)

    exact, over = await shell.output("head -c 1000 /dev/zero | tr '\\0' x"), await shell.output("seq 300")

    assert exact == {"stdout": "x" * 1000, "stderr": "", "returncode": 0}
    assert over["truncated"] is True


@pytest.mark.parametrize("limit", [1, 2, 10])
async def test_even_the_smallest_limit_holds(mount_shell: Any, limit: int) -> None:
    shell = await mount_shell(max_output_bytes=limit)

    output = await shell.output("seq 1000; seq 1000 >&2")

    assert (output["stdout_total_bytes"], output["stderr_total_bytes"]) == (3893, 3893)
    assert "[...OUTPUT TRUNCATED" in output["stdout"]


async def test_each_stream_has_a_limit_of_its_own(mount_shell: Any) -> None:
    shell = await mount_shell(max_output_bytes=1000)

    output = await shell.output("seq 10; seq 1000 >&2")

    assert output["stdout"] == "".join(f"{number}\n" for number in range(1, 11))
    assert "TRUNCATED" in output["stderr"]


BINARY = {
    "random bytes": ("head -c 4096 /dev/urandom", True),
    "a short one": ("head -c 300 /dev/urandom; printf '\\377'", False),
    "NUL-separated names": ("printf 'name-%s\\0' {1..200}", False),
    "latin-1 text": ("printf 'caf\\351 au lait\\n%.0s' {1..100}", False),
    "UTF-8 text": ("printf 'café\\n%.0s' {1..200}", False),
    "control bytes that are UTF-8": ("printf '\\001%.0s' {1..600}", False),
}


@pytest.mark.parametrize(("command", "is_withheld"), BINARY.values(), ids=BINARY)
async def test_binary_output_is_withheld_and_text_is_not(shell: Any, command: str, is_withheld: bool) -> None:
    stdout = (await shell.output(command))["stdout"]

    assert ("binary output withheld" in stdout) is is_withheld
    if is_withheld:
        assert all(part in stdout for part in ("stdout", "4096 bytes", "control bytes", "redirect"))


async def test_bytes_that_are_no_text_are_replaced(shell: Any) -> None:
    assert (await shell.output("printf 'a\\377b'"))["stdout"] == "a�b"
