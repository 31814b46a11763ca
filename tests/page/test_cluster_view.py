"""The cluster in the browser: who takes part, and taking one out of service."""

from __future__ import annotations

from pathlib import Path

import yaml
from playwright.sync_api import Browser, expect

from .chromium import Complaints, new_context
from .page_daemon import page_daemon


def test_members_are_seen_and_one_is_taken_out_of_service(
    browser: Browser, tmp_path: Path, postgres_address: str
) -> None:
    (tmp_path / "home/config").mkdir(parents=True)
    (tmp_path / "home/config/daemon.yaml").write_text(yaml.safe_dump({"store": postgres_address}))
    with page_daemon(tmp_path) as daemon:
        complaints, context = Complaints([daemon.url]), new_context(browser, daemon.url)
        with complaints.watched(context):
            page = context.new_page()
            page.goto(daemon.login_link())
            page.goto(f"{daemon.url}/app/daemon")
            member = page.get_by_role("region", name="Cluster").get_by_role("row", name=f"{daemon.url} this one")
            expect(member).to_contain_text("active")

            member.get_by_role("button", name=f"Drain {daemon.url}").click()
            page.get_by_role("button", name="Drain", exact=True).click()

            expect(member).to_contain_text("left")
            context.close()
        complaints.check()
