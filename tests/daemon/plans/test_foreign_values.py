"""What comes from elsewhere gets the person's keys and variables for hosts and fields that are the module's own."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from amplifierd.agreements import KEY, Agreement, Agreements
from amplifierd.exceptions import AgreementNeededError
from amplifierd.paths import Paths
from amplifierd.plans.foreign_values import ForeignValues
from amplifierd.plans.injection import inject_runtime, variables
from amplifierd.plans.runtime_values import RuntimePlaces

HERE = Path("/work")
PLACES = RuntimePlaces(working_dir=HERE, session_dir=HERE, sessions_dir=HERE, approvals_file=HERE / "approvals.jsonl")
ENVIRONMENT = {"OPENAI_API_KEY": "sk-own", "GITHUB_TOKEN": "ghp-own"}


class Bench:
    def __init__(self, paths: Paths) -> None:
        self.agreements = Agreements(paths)
        self.environment, self.stored, self.own = dict(ENVIRONMENT), dict[str, str](), set[tuple[str, ...]]()

    def run(self, section: str, module: str, **config: Any) -> dict[str, Any]:
        """Return the configuration that a module of a fetched plan gets."""
        plan = {"session": {"orchestrator": "loop-basic", "context": "context-simple"}}
        plan |= {section: [{"module": module, "config": config}]}

        def place_of(steps: tuple[str, ...], value: Any) -> str | None:
            return None if steps[3:] in self.own else "team/base line 7"

        find_key = self.stored.get
        foreign = ForeignValues(place_of, self.agreements, variables(self.environment, find_key), find_key)
        injected, _ = inject_runtime(
            plan, profile_id=None, places=PLACES, environment=self.environment, find_key=find_key, foreign=foreign
        )
        found: dict[str, Any] = injected[section][0].get("config", {})
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(Paths.from_environment(tmp_path, environ={}))


def needed(error: pytest.ExceptionInfo[AgreementNeededError]) -> list[Agreement]:
    return [Agreement.read(each) for each in error.value.agreements]


@pytest.mark.parametrize(
    ("base_url", "host"),
    [
        ("http://author.example/v1", "http://author.example"),
        ("https://api.openai.com@author.example/v1", "https://author.example"),
        ("https://api.openai.com:8443/v1", "https://api.openai.com:8443"),
        ("http://api.openai.com/v1", "http://api.openai.com"),
        ("https://api.openai.com\\@author.example/", "https://api.openai.com\\@author.example/"),
        ("${HOST:https://author.example}/v1", "https://author.example"),
        ("author.example", "author.example"),
    ],
)
def test_a_key_goes_to_no_host_that_no_one_agreed_to(bench: Bench, base_url: str, host: str) -> None:
    with pytest.raises(AgreementNeededError) as caught:
        bench.run("providers", "provider-openai", base_url=base_url)

    assert needed(caught) == [Agreement("provider-openai", KEY, (host,))]
    assert f"base_url: {base_url} (team/base line 7)" in caught.value.message
    assert f"amplifier config agree provider-openai {shlex.quote(host)}" in (caught.value.hint or "")


def test_a_value_of_an_author_is_one_line_of_the_question_and_one_word_of_the_command(bench: Bench) -> None:
    said = "http://author.example/ $(touch here); touch there\n  provider-openai would get nothing: \u2028all is well"
    with pytest.raises(AgreementNeededError) as caught:
        bench.run("providers", "provider-openai", base_url=said + "." * 10_000)

    assert len(caught.value.message.splitlines()) == 2
    assert "\\n  provider-openai would get nothing" in caught.value.message
    command = (caught.value.hint or "").partition(": ")[2]
    assert shlex.split(command) == ["amplifier", "config", "agree", "provider-openai", said + "." * 10_000]


def test_a_stored_key_is_bound_as_one_of_the_environment_is(bench: Bench) -> None:
    bench.environment, bench.stored = {}, {"provider-openai": "sk-stored"}

    with pytest.raises(AgreementNeededError):
        bench.run("providers", "provider-openai", base_url="http://author.example")
    with pytest.raises(AgreementNeededError):
        bench.run("providers", "provider-openai", base_url="http://author.example", api_key="")

    assert bench.run("providers", "provider-openai")["api_key"] == "sk-stored"


@pytest.mark.parametrize("base_url", ["https://api.openai.com/v1", "https://API.openai.com:443/"])
def test_the_host_that_the_module_declares_gets_the_key(bench: Bench, base_url: str) -> None:
    config = bench.run("providers", "provider-openai", base_url=base_url, api_key="${OPENAI_API_KEY}")

    assert config == {"base_url": base_url, "api_key": "sk-own"}


def test_without_a_key_any_host_is_reached_and_a_key_of_the_author_is_the_authors(bench: Bench) -> None:
    given = {"base_url": "http://author.example", "api_key": "key-of-the-author"}
    assert bench.run("providers", "provider-openai", **given) == given

    bench.environment = {}
    assert bench.run("providers", "provider-openai", base_url="http://localhost:11434")["base_url"]


def test_what_the_person_wrote_is_not_restricted(bench: Bench) -> None:
    bench.own = {("base_url",), ("default_headers", "Authorization")}

    config = bench.run(
        "providers",
        "provider-openai",
        base_url="http://mine.example/${GITHUB_TOKEN}",
        default_headers={"Authorization": "Bearer ${GITHUB_TOKEN}"},
    )

    assert config["base_url"] == "http://mine.example/ghp-own"
    assert config["default_headers"] == {"Authorization": "Bearer ghp-own"}


def test_a_key_that_the_person_wrote_does_not_go_to_a_host_of_the_author(bench: Bench) -> None:
    bench.environment, bench.own = {"MINE": "sk-mine"}, {("api_key",)}

    with pytest.raises(AgreementNeededError) as caught:
        bench.run("providers", "provider-openai", base_url="http://author.example", api_key="${MINE}")

    assert needed(caught) == [Agreement("provider-openai", KEY, ("http://author.example",))]


def test_a_variable_that_is_not_the_modules_own_is_withheld(bench: Bench) -> None:
    url = "http://author.example/${GITHUB_TOKEN}"

    with pytest.raises(AgreementNeededError) as caught:
        bench.run("providers", "provider-openai", base_url=url, api_key="${GITHUB_TOKEN}")
    hosts = ("http://author.example",)
    assert needed(caught) == [
        Agreement("provider-openai", "GITHUB_TOKEN", hosts),
        Agreement("provider-openai", KEY, hosts),
    ]

    config = bench.run("tools", "tool-own", token="${GITHUB_TOKEN:none}", other="${UNSET}", text="a ${UNSET} b")
    assert (config["token"], "other" in config, config["text"]) == ("none", False, "a  b")


def test_an_agreement_covers_a_variable_for_the_hosts_that_were_shown(bench: Bench) -> None:
    server = {"url": "https://api.github.com/mcp", "headers": {"Authorization": "Bearer ${GITHUB_TOKEN}"}}
    with pytest.raises(AgreementNeededError) as caught:
        bench.run("tools", "tool-mcp", servers={"github": server})

    bench.agreements.add(*needed(caught))

    config = bench.run("tools", "tool-mcp", servers={"github": server})
    assert config["servers"]["github"]["headers"] == {"Authorization": "Bearer ghp-own"}
    with pytest.raises(AgreementNeededError):
        bench.run("tools", "tool-mcp", servers={"github": {**server, "url": "https://author.example/"}})


def test_an_agreement_is_remembered_and_can_be_withdrawn(bench: Bench) -> None:
    agreement = Agreement("provider-openai", KEY, ("http://author.example",))
    bench.agreements.add(agreement)
    bench.agreements.add(agreement)

    assert bench.agreements.list() == (agreement,)
    assert bench.run("providers", "provider-openai", base_url="http://author.example/v1")
    assert bench.agreements.remove(agreement)
    assert not bench.agreements.remove(agreement)
    with pytest.raises(AgreementNeededError):
        bench.run("providers", "provider-openai", base_url="http://author.example/v1")


def test_the_secret_that_names_are_made_with_is_given_to_no_one(bench: Bench) -> None:
    bench.stored = {"AMPLIFIER_SECRET_NAMING": "naming", "AMPLIFIER_SECRET_0A": "written by the author"}

    config = bench.run("tools", "tool-own", one="${AMPLIFIER_SECRET_NAMING}", two="${AMPLIFIER_SECRET_0A}")

    assert (config.get("one"), config["two"]) == (None, "written by the author")


def test_the_texts_of_agents_keep_what_looks_like_a_variable(bench: Bench) -> None:
    foreign = ForeignValues(lambda steps, value: "team/base", bench.agreements, bench.environment.get, bench.stored.get)
    plan = {"session": {}, "agents": {"a": {"content": "echo ${GITHUB_TOKEN}"}}}

    injected, _ = inject_runtime(
        plan, profile_id=None, places=PLACES, environment=bench.environment, find_key=bench.stored.get, foreign=foreign
    )

    assert injected["agents"]["a"]["content"] == "echo ${GITHUB_TOKEN}"
