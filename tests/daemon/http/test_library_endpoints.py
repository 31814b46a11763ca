"""Collections, profiles, plans, modules, bundles and the cache over HTTP: each success, and each way to fail."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from .conftest import Served

API = "/api/v1"
OFFLINE = "foundation/offline"
GIT = ["git", "-c", "user.name=test", "-c", "user.email=test@localhost"]
COMMENTED = """---
profile:
  name: mine
  version: 1.0.0  # the first
  schema_version: 2
  extends: foundation/offline
tools:
- module: tool-todo  # steps
---

Be brief.
"""


def code_of(answer: Any) -> tuple[int, str | None]:
    return answer.status_code, answer.json().get("code")


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A collection in a directory, with one profile that works and one that does not."""
    folder = tmp_path_factory.mktemp("team")
    (folder / "profiles").mkdir()
    (folder / "profiles" / "good.md").write_text(COMMENTED.replace("name: mine", "name: good"))
    (folder / "profiles" / "offline.md").write_text(COMMENTED.replace("name: mine", "name: offline"))
    return folder


@pytest.fixture(scope="module")
def compiled(client: TestClient) -> dict[str, Any]:
    """The shipped offline profile, compiled."""
    answer = client.post(f"{API}/profiles/{OFFLINE}/compile")
    assert answer.status_code == 200, answer.text
    built: dict[str, Any] = answer.json()
    return built


@pytest.fixture(scope="module")
def plan(client: TestClient, compiled: dict[str, Any]) -> dict[str, Any]:
    answer = client.post(f"{API}/mount-plans/generate", json={"profile_id": OFFLINE})
    assert answer.status_code == 201, answer.text
    assert answer.json()["build_id"] == compiled["build_id"]
    made: dict[str, Any] = answer.json()["mount_plan"]
    return made


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("bundle") / "bundle.md"
    session = "session:\n  orchestrator: {module: loop-basic}\n  context: {module: context-simple}\n"
    text = f"bundle:\n  name: small\n  version: 1.0.0\n{session}providers:\n- module: provider-mock\n"
    file.write_text(f"---\n{text}---\n\nBe kind.\n")
    return file


class TestCollections:
    def test_the_shipped_one_is_listed(self, client: TestClient) -> None:
        plain = client.get(f"{API}/collections").json()
        full = client.get(f"{API}/collections", params={"include": "profiles"}).json()

        assert plain["total"] == len(plain["collections"]) >= 1
        assert plain["collections"][0]["identifier"] == "foundation"
        assert plain["collections"][0]["profiles"] is None
        assert isinstance(full["collections"][0]["profiles"], list)

    def test_a_collection_is_added_changed_synced_and_removed(self, client: TestClient, team: Path) -> None:
        body = {"identifier": "team", "source": str(team), "compile": False}

        added = client.post(f"{API}/collections", json=body)
        assert (added.status_code, added.json()["status"], added.json()["profile_count"]) == (201, "mounted", 2)
        assert added.headers["location"] == f"{API}/collections/team"
        assert code_of(client.post(f"{API}/collections", json=body)) == (409, "collection-exists")
        shown = client.get(f"{API}/collections/team").json()
        assert {each["name"] for each in shown["profiles"]} == {"good", "offline"}
        assert shown["agents"] == []
        changed = client.patch(f"{API}/collections/team", json={"auto_sync": False})
        assert changed.json()["auto_sync"] is False
        synced = client.post(f"{API}/collections/team/sync", json={"auto_compile": False})
        assert synced.json()["results"]["team"]["status"] in ("synced", "unchanged")
        assert client.get(f"{API}/operations").json()["operations"][0]["progress"]["total"] == 1
        checked = client.post(f"{API}/collections/sync", json={"check_only": True})
        assert set(checked.json()["results"]) >= {"foundation", "team"}
        assert client.delete(f"{API}/collections/team").status_code == 204
        assert code_of(client.get(f"{API}/collections/team")) == (404, "collection-not-found")

    @pytest.mark.parametrize("bad", ["../x", "A", "", "a/b", "x" * 65, "\U0007a79e"])
    def test_an_id_cannot_be_anything(self, client: TestClient, bad: str, team: Path) -> None:
        answer = client.post(f"{API}/collections", json={"identifier": bad, "source": str(team)})

        assert code_of(answer) == (400, "invalid-identifier")

    @pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
    @pytest.mark.parametrize("bad", ["..%2F..%2Fetc", "%2e%2e", "A B", "x%00y"])
    def test_no_id_leads_out_of_the_home(self, client: TestClient, method: str, bad: str) -> None:
        body = {"json": {"enabled": False}} if method == "PATCH" else {}

        assert 400 <= client.request(method, f"{API}/collections/{bad}", **body).status_code < 500

    def test_what_cannot_be_had_is_told_by_who_can_act(self, client: TestClient, tmp_path: Path) -> None:
        def add(source: str) -> tuple[int, str | None]:
            return code_of(client.post(f"{API}/collections", json={"identifier": "x", "source": source}))

        file = tmp_path / "file.md"
        file.write_text("no directory")
        assert add(str(file))[0] == 400
        assert add(str(tmp_path / "missing")) == (400, "invalid-request")
        assert add(f"git+file://{tmp_path}/missing@main") == (502, "ref-resolution-failed")
        assert add("git+nonsense")[0] == 400
        assert code_of(client.get(f"{API}/collections/x")) == (404, "collection-not-found")

    def test_unknown_and_protected_ones(self, client: TestClient) -> None:
        assert code_of(client.delete(f"{API}/collections/nothing")) == (404, "collection-not-found")
        assert code_of(client.delete(f"{API}/collections/local")) == (403, "forbidden")
        assert code_of(client.delete(f"{API}/collections/foundation")) == (403, "forbidden")
        assert code_of(client.post(f"{API}/collections/nothing/sync")) == (404, "collection-not-found")
        assert code_of(client.patch(f"{API}/collections/nothing", json={"enabled": True}))[0] == 404
        assert code_of(client.patch(f"{API}/collections/foundation", json={})) == (400, "invalid-request")
        assert code_of(client.patch(f"{API}/collections/foundation", json={"colour": 1})) == (422, "extra-field")

    @pytest.mark.parametrize(
        "security", [{"allowed_sources": ["git+https://trusted.example/*"]}, {"require_pinned": True}]
    )
    def test_code_comes_only_from_where_the_settings_allow(
        self, serve: Callable[..., Served], security: dict[str, Any], tmp_path: Path
    ) -> None:
        package = tmp_path / "amplifier_module_tool_x"
        package.mkdir()
        (package / "__init__.py").write_text("raise RuntimeError('it ran')\n")
        for command in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "x"]):
            subprocess.run([*GIT, *command], cwd=tmp_path, check=True)
        client = serve(security=security).client()
        tool = {"module": "tool-x", "source": f"git+{tmp_path.as_uri()}@main"}
        body = {"name": "elsewhere", "extends": OFFLINE, "tools": [tool]}
        assert client.post(f"{API}/profiles", json=body).status_code == 201

        refused = client.post(f"{API}/profiles/elsewhere/compile")

        assert code_of(refused) == (403, "forbidden"), refused.text
        assert f"security.{next(iter(security))}" in refused.text
        assert code_of(client.get(f"{API}/profiles/elsewhere/lock")) == (404, "profile-not-found")


class TestProfiles:
    @pytest.fixture
    def mine(self, client: TestClient) -> Iterator[str]:
        """A profile of the caller's own."""
        made = client.post(f"{API}/profiles", json={"markdown": COMMENTED})
        assert made.status_code == 201, made.text
        yield "local/mine"
        client.delete(f"{API}/profiles/active")
        client.delete(f"{API}/profiles/local/mine")

    def test_they_are_listed_and_filtered(self, client: TestClient, compiled: dict[str, Any]) -> None:
        everything = client.get(f"{API}/profiles").json()
        page = client.get(f"{API}/profiles", params={"limit": 1, "offset": 1}).json()

        ids = [each["id"] for each in everything["profiles"]]
        assert OFFLINE in ids
        assert [each["status"] for each in everything["profiles"] if each["id"] == OFFLINE] == ["fresh"]
        assert (len(page["profiles"]), page["total"], page["has_more"]) == (1, len(ids), len(ids) > 2)
        assert client.get(f"{API}/profiles", params={"collection": "local"}).json()["profiles"] == []
        assert client.get(f"{API}/profiles", params={"valid": "false"}).json()["profiles"] == []

    def test_one_is_shown_as_written_merged_or_as_its_file(self, client: TestClient) -> None:
        shown = client.get(f"{API}/profiles/{OFFLINE}").json()
        merged = client.get(f"{API}/profiles/{OFFLINE}", params={"resolved": True}).json()
        raw = client.get(f"{API}/profiles/{OFFLINE}", params={"raw": True})

        assert (shown["id"], shown["is_local"], shown["valid"]) == (OFFLINE, False, True)
        assert merged["inheritance_chain"][-1] == OFFLINE
        assert merged["provenance"]["session"]["origin"]
        assert raw.headers["content-type"].startswith("text/markdown")
        assert raw.text.startswith("---")
        assert client.get(f"{API}/profiles/offline").json()["id"] == OFFLINE

    def test_it_is_made_changed_with_comments_kept_and_deleted(
        self, client: TestClient, served: Served, mine: str
    ) -> None:
        file = served.home.paths.own_profiles / "mine.md"

        changed = client.patch(f"{API}/profiles/{mine}", json={"description": "Short", "instruction": "Be long."})

        assert changed.json()["description"] == "Short"
        assert changed.json()["instruction"] == "Be long."
        assert "# the first" in file.read_text()
        assert "# steps" in file.read_text()
        removed = client.patch(f"{API}/profiles/{mine}", json={"tools": None, "description": None})
        assert removed.json()["tools"] == []
        assert code_of(client.post(f"{API}/profiles", json={"markdown": COMMENTED})) == (409, "profile-exists")
        assert client.delete(f"{API}/profiles/{mine}").status_code == 204
        assert not file.exists()
        assert code_of(client.get(f"{API}/profiles/{mine}")) == (404, "profile-not-found")

    def test_the_whole_text_is_written_over_the_one_that_was_read_and_no_other(
        self, client: TestClient, served: Served, mine: str
    ) -> None:
        file, address = served.home.paths.own_profiles / "mine.md", f"{API}/profiles/{mine}"
        read = client.get(address, params={"raw": True})
        text, version = read.text.replace("Be brief.", "Be long."), {"If-Match": read.headers["etag"]}

        written = client.put(address, json={"markdown": text}, headers=version)

        assert (written.status_code, written.json()["instruction"], file.read_text()) == (200, "Be long.", text)
        assert code_of(client.put(address, json={"markdown": text}, headers=version)) == (409, "profile-changed")
        assert client.put(address, json={"markdown": read.text}).status_code == 200
        refused = client.put(address, json={"markdown": text.replace("name: mine", "name: other")})
        assert code_of(refused) == (422, "validation-error")
        assert code_of(client.put(address, json={"markdown": "---\n---\n"})) == (422, "profile-invalid")
        assert code_of(client.put(f"{API}/profiles/{OFFLINE}", json={"markdown": text})) == (403, "profile-read-only")
        assert file.read_text() == read.text

    def test_a_secret_in_it_is_not_shown_and_still_there_when_the_text_is_written_back(
        self, client: TestClient, served: Served, mine: str
    ) -> None:
        file, address = served.home.paths.own_profiles / "mine.md", f"{API}/profiles/{mine}"
        file.write_text(
            file.read_text().replace("\n---\n", "\nhooks: [{module: hooks-x, config: {token: hunter-2-x}}]\n---\n", 1)
        )
        before = client.get(address).json()
        read = client.get(address, params={"raw": True})

        written = client.put(address, json={"markdown": read.text}, headers={"If-Match": read.headers["etag"]})

        assert "hunter" not in read.text + file.read_text() + str(before)
        assert (written.status_code, client.get(address).json()) == (200, before)
        (kept,) = re.findall(r"AMPLIFIER_SECRET_\w+", file.read_text())
        assert served.home.keys.find(kept) == "hunter-2-x"

    def test_a_file_that_was_broken_by_hand_is_read_and_mended(
        self, client: TestClient, served: Served, mine: str
    ) -> None:
        file, address = served.home.paths.own_profiles / "mine.md", f"{API}/profiles/{mine}"
        sound = file.read_text()
        file.write_text("---\nprofile: [\n---\n")

        read = client.get(address, params={"raw": True})

        assert (read.status_code, read.text) == (200, "---\nprofile: [\n---\n")
        assert client.put(address, json={"markdown": sound}).json()["valid"] is True

    def test_it_can_be_given_as_data(self, client: TestClient) -> None:
        body = {"name": "data", "description": "From JSON", "extends": OFFLINE, "instruction": "Hello"}

        made = client.post(f"{API}/profiles", json=body)

        assert made.status_code == 201, made.text
        assert (made.json()["version"], made.json()["instruction"]) == ("0.1.0", "Hello")
        assert made.headers["location"] == f"{API}/profiles/local/data"
        assert client.delete(f"{API}/profiles/local/data").status_code == 204

    @pytest.mark.parametrize("manager", ["context-simple", {"module": "context-simple"}, {"docs": "./docs"}])
    def test_its_orchestrator_and_context_manager_can_stand_beside_the_other_sections(
        self, client: TestClient, manager: Any
    ) -> None:
        body = {"name": "short", "orchestrator": {"module": "loop-basic"}, "context": manager}

        made = client.post(f"{API}/profiles", json={**body, "providers": [{"module": "provider-mock"}]}).json()

        found = (made["session"].get("context"), made["context"])
        assert made["session"]["orchestrator"] == {"module": "loop-basic"}
        assert found == ((None, manager) if "docs" in manager else ({"module": "context-simple"}, {}))
        both = client.post(f"{API}/profiles", json={**body, "name": "both", "session": {}})
        assert code_of(both) == (422, "validation-error")
        assert client.delete(f"{API}/profiles/local/short").status_code == 204

    def test_one_that_breaks_rules_is_neither_stored_nor_changed(
        self, client: TestClient, served: Served, mine: str
    ) -> None:
        before = (served.home.paths.own_profiles / "mine.md").read_text()

        assert code_of(client.post(f"{API}/profiles", json={"markdown": "no front matter"})) == (422, "profile-invalid")
        named = {"name": "No Such Name", "extends": OFFLINE}
        assert code_of(client.post(f"{API}/profiles", json=named)) == (422, "profile-invalid")
        assert code_of(client.post(f"{API}/profiles", json={"name": "bare"})) == (422, "profile-invalid")
        assert code_of(client.post(f"{API}/profiles", json={}))[0] == 422
        wrong = client.patch(f"{API}/profiles/{mine}", json={"extends": "nothing/here"})
        assert code_of(wrong) == (422, "profile-invalid")
        assert {"code", "message", "location", "severity"} <= wrong.json()["issues"][0].keys()
        assert (served.home.paths.own_profiles / "mine.md").read_text() == before

    def test_only_your_own_can_be_changed(self, client: TestClient) -> None:
        assert code_of(client.patch(f"{API}/profiles/{OFFLINE}", json={"description": "x"})) == (
            403,
            "profile-read-only",
        )
        assert code_of(client.delete(f"{API}/profiles/{OFFLINE}")) == (403, "profile-read-only")

    def test_any_can_be_copied(self, client: TestClient) -> None:
        made = client.post(f"{API}/profiles/{OFFLINE}/copy", json={"new_name": "again"})

        assert (made.status_code, made.json()["id"]) == (201, "local/again")
        again = client.post(f"{API}/profiles/{OFFLINE}/copy", json={"new_name": "again"})
        assert code_of(again) == (409, "profile-exists")
        assert code_of(client.post(f"{API}/profiles/{OFFLINE}/copy", json={"new_name": "../x"}))[0] == 422
        assert code_of(client.post(f"{API}/profiles/a/b/copy", json={"new_name": "c"}))[0] == 404
        client.delete(f"{API}/profiles/local/again")

    def test_one_that_a_session_is_to_run_is_not_deleted(self, client: TestClient, mine: str) -> None:
        waiting = client.post(f"{API}/sessions", json={"profile_name": mine, "start": False})

        assert code_of(client.delete(f"{API}/profiles/{mine}")) == (409, "profile-in-use")
        assert client.delete(f"{API}/sessions/{waiting.json()['session_id']}").status_code == 204

    def test_one_is_active_at_a_time_and_then_not_deleted(self, client: TestClient, mine: str) -> None:
        assert client.get(f"{API}/profiles/active").json() is None
        chosen = client.put(f"{API}/profiles/active", json={"profile_id": "mine"})

        assert (chosen.json()["id"], chosen.json()["is_active"]) == (mine, True)
        assert client.get(f"{API}/profiles").json()["default_id"] == mine
        assert code_of(client.delete(f"{API}/profiles/{mine}")) == (409, "profile-in-use")
        assert client.delete(f"{API}/profiles/active").status_code == 204
        assert client.get(f"{API}/profiles/active").json() is None
        assert code_of(client.put(f"{API}/profiles/active", json={"profile_id": "no/such"}))[0] == 404
        assert code_of(client.put(f"{API}/profiles/active", json={"profile_id": "../x"}))[0] == 400

    def test_a_name_that_only_one_collection_has_is_enough(self, client: TestClient, mine: str) -> None:
        assert client.post(f"{API}/profiles/mine/compile").json()["profile_id"] == mine
        for below in ("", "/status", "/lock"):
            assert client.get(f"{API}/profiles/mine{below}").status_code == 200, below
        assert client.patch(f"{API}/profiles/mine", json={"description": "Short"}).json()["id"] == mine
        assert client.post(f"{API}/profiles/mine/copy", json={"new_name": "theirs"}).json()["id"] == "local/theirs"
        assert client.delete(f"{API}/profiles/theirs").status_code == 204
        assert code_of(client.delete(f"{API}/profiles/theirs")) == (404, "profile-not-found")
        assert code_of(client.get(f"{API}/profiles/a/b/c")) == (400, "invalid-identifier")

    def test_a_name_that_two_collections_have_is_ambiguous(self, client: TestClient, team: Path) -> None:
        client.post(f"{API}/collections", json={"identifier": "two", "source": str(team), "compile": False})

        for method, path in (("GET", "offline"), ("DELETE", "offline"), ("POST", "offline/compile")):
            assert code_of(client.request(method, f"{API}/profiles/{path}")) == (409, "ambiguous-profile")
        client.delete(f"{API}/collections/two")

    def test_it_is_compiled_once_and_its_status_and_lock_say_so(
        self, client: TestClient, compiled: dict[str, Any]
    ) -> None:
        again = client.post(f"{API}/profiles/{OFFLINE}/compile", json={"force": False}).json()
        status = client.get(f"{API}/profiles/{OFFLINE}/status").json()
        lock = client.get(f"{API}/profiles/{OFFLINE}/lock").json()

        assert (again["status"], again["build_id"]) == ("unchanged", compiled["build_id"])
        assert (status["status"], status["build_id"]) == ("fresh", compiled["build_id"])
        assert lock["build_id"] == compiled["build_id"]
        assert client.get(f"{API}/profiles/{OFFLINE}/status", params={"check_remote": True}).json()["moved"] == []

    def test_long_work_can_be_left_to_itself(self, client: TestClient) -> None:
        answer = client.post(f"{API}/profiles/{OFFLINE}/compile", params={"wait": False})

        assert answer.status_code == 202
        operation = client.get(answer.headers["location"]).json()
        assert (operation["id"], operation["kind"]) == (answer.json()["operation_id"], "profile-compile")

    def test_what_is_not_there(self, client: TestClient) -> None:
        for path in ("no/such", "no/such/status", "no/such/lock", "foundation/research/lock"):
            assert code_of(client.get(f"{API}/profiles/{path}")) == (404, "profile-not-found"), path
        assert code_of(client.post(f"{API}/profiles/no/such/compile")) == (404, "profile-not-found")

    @pytest.mark.parametrize("bad", ["..%2Fx/y", "x/..%2F..%2Fy", "A/b", "%2e%2e/%2e%2e", "a/b%00"])
    @pytest.mark.parametrize("below", ["", "/status", "/lock"])
    def test_no_id_leads_out_of_the_home(self, client: TestClient, bad: str, below: str) -> None:
        assert 400 <= client.get(f"{API}/profiles/{bad}{below}").status_code < 500

    def test_a_text_is_validated_without_being_stored(self, client: TestClient) -> None:
        good = client.post(f"{API}/profiles/validate", json={"markdown": COMMENTED}).json()
        bad = client.post(f"{API}/profiles/validate", json={"markdown": "no front matter"}).json()

        assert (good["valid"], bad["valid"]) == (True, False)
        assert bad["issues"]


class TestPlans:
    def test_there_and_back_is_the_same(self, client: TestClient, plan: dict[str, Any]) -> None:
        def convert(given: dict[str, Any], form: str) -> dict[str, Any]:
            body = {"mount_plan": given, "form": form, "profile_id": OFFLINE}
            converted: dict[str, Any] = client.post(f"{API}/mount-plans/convert", json=body).json()["mount_plan"]
            return converted

        assert convert(convert(plan, "resolved"), "portable") == plan

    def test_overrides_are_laid_over_it(self, client: TestClient) -> None:
        overrides = {"session": {"injection_budget_per_turn": 7}}
        body = {"profile_id": OFFLINE, "settings_overrides": overrides, "form": "resolved"}

        made = client.post(f"{API}/mount-plans/generate", json=body).json()

        assert made["mount_plan"]["session"]["injection_budget_per_turn"] == 7
        assert made["form"] == "resolved"

    def test_what_cannot_be_generated_or_converted(self, client: TestClient) -> None:
        def generate(**body: Any) -> tuple[int, str | None]:
            return code_of(client.post(f"{API}/mount-plans/generate", json=body))

        assert generate(profile_id="no/such") == (404, "profile-not-found")
        assert generate(profile_id="../x") == generate(profile_id="offline") == (400, "invalid-identifier")
        assert generate(profile_id=OFFLINE, form="odd") == (422, "validation-error")
        wrong = client.post(f"{API}/mount-plans/convert", json={"mount_plan": {"tools": 3}, "form": "portable"})
        assert code_of(wrong) == (422, "mount-plan-invalid")

    def test_a_value_is_explained(self, client: TestClient, compiled: dict[str, Any]) -> None:
        body = {"profile_id": OFFLINE, "key": "session.orchestrator.module"}

        found = client.post(f"{API}/mount-plans/explain", json=body).json()

        assert found["value"]
        assert found["origin"]["file"]
        missing = client.post(f"{API}/mount-plans/explain", json={**body, "key": "session.nothing.here"})
        assert code_of(missing) == (404, "not-found")
        uncompiled = client.post(f"{API}/mount-plans/explain", json={**body, "profile_id": "foundation/research"})
        assert uncompiled.status_code == 404
        assert 400 <= client.post(f"{API}/mount-plans/explain", json={**body, "key": "tools[["}).status_code < 500

    def test_two_are_compared(self, client: TestClient, plan: dict[str, Any]) -> None:
        other = {**plan, "tools": plan["tools"][1:]}
        body = {"before": {"profile_id": OFFLINE}, "after": {"mount_plan": other}}

        found = client.post(f"{API}/mount-plans/diff", json=body).json()

        assert [each["module"] for each in found["removed"]] == [plan["tools"][0]["module"]]
        assert found["text"].startswith("- tools")
        neither = client.post(f"{API}/mount-plans/diff", json={"before": {}, "after": {"profile_id": OFFLINE}})
        assert code_of(neither) == (400, "invalid-request")

    def test_a_plan_is_checked_whatever_it_is(self, client: TestClient, plan: dict[str, Any]) -> None:
        def check(given: Any) -> dict[str, Any]:
            answer = client.post(f"{API}/validate/mount-plan", json={"mount_plan": given})
            assert answer.status_code == 200, answer.text
            verdict: dict[str, Any] = answer.json()
            return verdict

        assert check(plan)["valid"] is True
        assert check({})["errors"][0]["message"] == "Configuration is required"
        for wrong in (None, 3, [], {"session": 1}, {"session": {}, "tools": {}}):
            assert check(wrong)["passed"] is False


class TestModules:
    def test_installed_and_compiled_ones_are_listed(self, client: TestClient, compiled: dict[str, Any]) -> None:
        tools = client.get(f"{API}/modules/tools", params={"limit": 1000}).json()
        same = client.get(f"{API}/modules", params={"type": "tool", "limit": 1000}).json()
        used = client.get(f"{API}/modules", params={"profile": OFFLINE}).json()

        assert tools == same
        assert {each["type"] for each in tools["modules"]} == {"tool"}
        assert "tool-bash" in {each["id"] for each in tools["modules"]}
        assert used["modules"]
        assert all(OFFLINE in each["profiles"] for each in used["modules"])

    @pytest.mark.parametrize("plural", ["orchestrators", "contexts", "providers", "hooks"])
    def test_each_type_has_a_list(self, client: TestClient, plural: str) -> None:
        assert client.get(f"{API}/modules/{plural}").json()["total"] > 0

    def test_one_is_shown(self, client: TestClient) -> None:
        found = client.get(f"{API}/modules/tool-bash").json()

        assert (found["type"], found["mount_type"], found["package"]) == ("tool", "tools", "amplifier_module_tool_bash")
        assert code_of(client.get(f"{API}/modules/tool-none")) == (404, "module-not-found")
        assert 400 <= client.get(f"{API}/modules/..%2Fx").status_code < 500
        assert code_of(client.get(f"{API}/modules", params={"profile": "no/such"})) == (404, "profile-not-found")
        assert client.get(f"{API}/modules", params={"type": "odd"}).status_code == 422

    def test_one_is_validated_in_a_process_of_its_own(self, client: TestClient, tmp_path: Path) -> None:
        def validate(**body: Any) -> Any:
            return client.post(f"{API}/validate/module", json=body)

        good = validate(module_id="tool-todo").json()
        package = tmp_path / "tool-hostile" / "amplifier_module_tool_hostile"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("import os\nos._exit(3)\n")
        hostile = validate(module_id="tool-hostile", source=str(package.parent)).json()

        assert good["valid"] is True, good
        assert hostile["valid"] is False
        assert "exit 3" in hostile["checks"][0]["message"]
        assert code_of(validate(module_id="tool-none")) == (404, "module-not-found")
        assert code_of(validate(module_id="../x")) == (400, "invalid-identifier")
        assert client.get("/health").status_code == 200


class TestBundles:
    def test_one_is_checked_registered_listed_and_forgotten(self, client: TestClient, bundle: Path) -> None:
        assert client.post(f"{API}/validate/bundle", json={"source": str(bundle)}).json()["valid"] is True
        made = client.post(f"{API}/bundles", json={"uri": str(bundle)})
        assert (made.status_code, made.json()["name"], made.json()["providers"]) == (201, "small", ["provider-mock"])
        assert code_of(client.post(f"{API}/bundles", json={"uri": str(bundle)})) == (409, "bundle-exists")
        assert [each["name"] for each in client.get(f"{API}/bundles").json()["bundles"]] == ["small"]
        for start in (False, True):
            using = client.post(f"{API}/sessions", json={"bundle_name": "small", "start": start})
            assert using.status_code == 201, using.text
            assert code_of(client.delete(f"{API}/bundles/small")) == (409, "bundle-in-use")
            assert client.delete(f"{API}/sessions/{using.json()['session_id']}").status_code == 204
        assert client.delete(f"{API}/bundles/small").status_code == 204
        assert code_of(client.delete(f"{API}/bundles/small")) == (404, "bundle-not-found")

    def test_what_cannot_be_loaded_is_not_registered(self, client: TestClient, tmp_path: Path) -> None:
        wrong = tmp_path / "bundle.md"
        wrong.write_text("---\nbundle: [\n---\n")

        assert code_of(client.post(f"{API}/bundles", json={"uri": str(wrong)}))[0] == 422
        assert client.post(f"{API}/bundles", json={"uri": str(tmp_path / "none")}).status_code in (404, 502)
        assert code_of(client.post(f"{API}/bundles", json={"uri": str(wrong), "name": "../x"}))[0] == 422
        assert client.get(f"{API}/bundles").json()["bundles"] == []
        assert client.post(f"{API}/validate/bundle", json={"source": str(wrong)}).json()["valid"] is False


class TestCache:
    def test_it_says_how_it_is_and_is_verified_and_pruned(
        self, client: TestClient, served: Served, compiled: dict[str, Any]
    ) -> None:
        status = client.get(f"{API}/cache/status").json()
        verified = client.post(f"{API}/cache/verify").json()
        counted = client.get(f"{API}/operations").json()["operations"][0]["progress"]
        pruned = client.post(f"{API}/cache/prune", json={"dry_run": True, "keep_days": 0}).json()

        assert status["overall_status"] in ("fresh", "stale")
        assert (verified["checked"] >= 1, verified["damaged"]) == (True, [])
        assert counted["done"] == counted["total"] == verified["checked"]
        assert pruned["bytes"] >= 0
        assert code_of(client.post(f"{API}/cache/prune", json={"keep_days": -1})) == (422, "validation-error")
