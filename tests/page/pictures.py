"""Take the pictures of the page that the documentation shows, `docs/images/*.png`: make pictures.

A real daemon on a home of its own, sessions whose model follows a script, and the system's Chromium.
"""

import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, Page, ViewportSize

from .chromium import Chromium
from .page_daemon import PageDaemon, page_daemon
from .sample_sessions import calls, create, plan_of

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "images"
LARGEST_BYTES = 200_000
SIZE: ViewportSize = {"width": 1280, "height": 800}
PHONE: ViewportSize = {"width": 390, "height": 780}

CART = '''"""What a customer is going to buy."""


def total(items, discount=0.0):
    return sum(item.price for item in items) - discount
'''
ANSWER = """The discount was subtracted as an amount, but callers pass a **rate**. I changed `total`:

```python
def total(items, discount=0.0):
    return sum(item.price for item in items) * (1 - discount)
```

| Case | Before | Now |
|---|---|---|
| no discount | 30.00 | 30.00 |
| 10 % of 30.00 | 29.90 | 27.00 |

Next I would run the tests.
"""


def usage(read: int, written: int, cost: str) -> dict[str, Any]:
    return {"usage": {"input_tokens": read, "output_tokens": written, "total_tokens": read + written, "cost_usd": cost}}


def working_plan() -> dict[str, Any]:
    """An engineer at work: it reads two files at once, edits one, asks a reviewer, and wants to run the tests."""
    edit = {"old_string": "- discount", "new_string": "* (1 - discount)", "file_path": "cart.py"}
    reading = [{"name": "read_file", "arguments": {"file_path": name}} for name in ("cart.py", "test_cart.py")]
    steps = [
        {
            "thinking": "Callers pass 0.1 for ten percent. Subtracting it takes off ten cents.",
            "text": "I look at the cart and at its tests.",
            "tool_calls": reading,
            "latency_ms": 350,
            **usage(2100, 90, "0.0081"),
        },
        {
            **calls("edit_file", text="The rate is subtracted as if it were an amount.", **edit),
            "latency_ms": 500,
            **usage(2900, 140, "0.0107"),
        },
        {
            **calls("task", text="A reviewer should see that.", agent="reviewer", instruction="Review cart.py"),
            "latency_ms": 300,
            **usage(3300, 60, "0.0111"),
        },
        {"text": ANSWER, "latency_ms": 400, **usage(3900, 210, "0.0149")},
        {
            **calls("bash", text="I run the tests.", command="pytest -q test_cart.py"),
            "latency_ms": 200,
            **usage(4300, 40, "0.0135"),
        },
        "All tests pass.",
    ]
    review = {
        **calls("read_file", text="I read it.", file_path="cart.py"),
        "latency_ms": 250,
        **usage(1200, 50, "0.0042"),
    }
    verdict = {"text": "The change is right. The signature stayed.", "latency_ms": 250, **usage(1500, 60, "0.0051")}
    return plan_of(
        *steps,
        tools=[{"module": name} for name in ("tool-filesystem", "tool-search", "tool-bash", "tool-task", "tool-todo")],
        hooks=[
            {"module": "hooks-approval", "config": {"ask_user_fallback": True, "rules": []}},
            {"module": "hooks-redaction"},
        ],
        agents={"reviewer": {"description": "Reviews changes", "providers": plan_of(review, verdict)["providers"]}},
    )


def prepare(daemon: PageDaemon) -> str:
    """Fill the home with sessions, and return the one that the pictures look at."""
    (daemon.directory / "cart.py").write_text(CART)
    (daemon.directory / "test_cart.py").write_text("from cart import total\n")
    for name, answer in (
        ("Notes for the release", "Here are the notes, grouped by what a reader gains."),
        ("Why is the import slow?", "Two modules import pandas at the top."),
        ("Translate the error messages", "I translated 48 messages."),
    ):
        other = create(daemon, plan_of({"text": answer, **usage(1800, 120, "0.0062")}), name)
        daemon.run(other, name)
    main = create(daemon, working_plan(), "Discount is wrong in the cart")
    daemon.begin(main, "Ten percent off takes off ten cents. Find out why, and mend it.")
    settle(daemon, main, turns=1)
    daemon.begin(main, "Run the tests.")
    settle(daemon, main, turns=2)
    return main


def settle(daemon: PageDaemon, session: str, turns: int) -> None:
    """Answer what is asked about files, and wait until so many turns are over or a command waits to be allowed."""
    for _ in range(600):
        for question in daemon.api.get(f"/sessions/{session}/approvals").json()["pending"]:
            if question["tool_name"] == "bash":
                return
            daemon.api.post(
                f"/sessions/{question['session_id']}/approvals/{question['request_id']}", json={"decision": "allow"}
            ).raise_for_status()
        shown = daemon.api.get(f"/sessions/{session}").json()
        if (shown["activity"], shown["turn_count"]) == ("idle", turns):
            return
        time.sleep(0.1)


def take(browser: Browser, daemon: PageDaemon, session: str) -> None:
    pictures: dict[str, tuple[str, ViewportSize, Literal["light", "dark"]]] = {
        "conversation": (f"/app/sessions/{session}", SIZE, "light"),
        "sessions": ("/app/", SIZE, "dark"),
        "timeline": (f"/app/sessions/{session}/timeline", SIZE, "light"),
        "why": (f"/app/sessions/{session}/why", SIZE, "dark"),
        "plan": (f"/app/sessions/{session}/plan", SIZE, "light"),
        "profile": ("/app/profiles/foundation/coding", SIZE, "light"),
        "phone": (f"/app/sessions/{session}", PHONE, "dark"),
    }
    PICTURES.mkdir(exist_ok=True)
    for name, (address, size, scheme) in pictures.items():
        context = browser.new_context(base_url=daemon.url, viewport=size, color_scheme=scheme, reduced_motion="reduce")
        page = context.new_page()
        page.goto(daemon.login_link())
        page.wait_for_selector("page-frame")
        page.goto(address)
        rest(page)
        if name == "timeline":
            page.get_by_text("Turn 1", exact=True).click()
            rest(page)
        file = PICTURES / f"{name}.png"
        page.screenshot(path=file)
        context.close()
        bytes_of_it = file.stat().st_size
        if bytes_of_it > LARGEST_BYTES:
            sys.exit(f"{file.name} has {bytes_of_it} bytes, more than {LARGEST_BYTES}")
        sys.stdout.write(f"{file.relative_to(ROOT)}: {bytes_of_it // 1000} kB\n")


def rest(page: Page) -> None:
    """Wait until nothing is being loaded."""
    page.wait_for_load_state("load")
    page.wait_for_selector(".is-loading, .boot", state="detached")
    page.wait_for_timeout(1_500)


def _made(directory: str) -> Path:
    shop = Path(directory) / "shop"
    shop.mkdir()
    return shop


def main() -> None:
    chromium = Chromium()
    try:
        with tempfile.TemporaryDirectory() as directory, page_daemon(_made(directory)) as daemon:
            take(chromium.browser(), daemon, prepare(daemon))
    finally:
        chromium.close()


if __name__ == "__main__":
    main()
