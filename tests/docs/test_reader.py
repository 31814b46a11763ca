"""A page that shows something else than what happens is caught."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

GOOD = """
```python
print(6 * 7)
```

```output
42
```

```text file=notes/a.txt
one line
```

```console
$ cat notes/a.txt
one line
```
"""

Open = Callable[[str], Any]


def _page(page: Open, folder: Path, text: str) -> Any:
    (folder / "page.md").write_text(text)
    return page(str(folder / "page.md"))


async def test_a_page_that_tells_the_truth_passes(page: Open, reader: Any, folder: Path) -> None:
    await reader.read(_page(page, folder, GOOD))

    assert reader.outputs == ["42\n", "one line\n"]


@pytest.mark.parametrize(
    ("true", "wrong"),
    [
        ("\n42\n", "\n43\n"),
        ("```output\n42\n```", ""),
        ("$ cat notes/a.txt\none line", "$ cat notes/a.txt\ntwo lines"),
        ("$ cat notes/a.txt", "$ cat notes/b.txt"),
        ("print(6 * 7)", "print(six * seven)"),
        ("```text file=notes/a.txt\none line", "```toml\none line"),
    ],
    ids=["output", "nothing shown", "console", "failing command", "failing code", "broken data"],
)
async def test_a_page_that_does_not_is_caught(page: Open, reader: Any, folder: Path, true: str, wrong: str) -> None:
    assert true in GOOD
    lying = _page(page, folder, GOOD.replace(true, wrong))

    with pytest.raises((AssertionError, NameError, ValueError)):
        await reader.read(lying)
