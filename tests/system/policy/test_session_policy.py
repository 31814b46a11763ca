"""What a session may touch: by default, by its own rules, and under whatever name."""

from pathlib import Path

import pytest

from amplifier_system.policy import PolicyError, SessionPolicy
from amplifier_system.policy.network_access import NetworkAccess


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("AMPLIFIERD_HOME", raising=False)
    monkeypatch.delenv("AMPLIFIERD_CONFIG_DIR", raising=False)
    (tmp_path / "home/.ssh").mkdir(parents=True)
    (tmp_path / "home/.ssh/id_rsa").write_text("key")
    return tmp_path / "home"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work/.git").mkdir(parents=True)
    return tmp_path / "work"


@pytest.mark.parametrize(
    "path",
    [
        "~/.ssh/id_rsa",
        "~/.ssh",
        "~/.aws/credentials",
        "~/.netrc",
        "~/.mozilla/firefox/x/logins.json",
        "~/.amplifierd/config/secrets.yaml",
        "~/.amplifierd/config/token",
        "/proc/self/environ",
        "/sys/kernel",
        "/dev/mem",
        "/dev/../proc/1/environ",
    ],
)
def test_secret_places_are_neither_readable_nor_writable(home: Path, work: Path, path: str) -> None:
    policy = SessionPolicy.of({"write": {"allow": ["/"]}}, working_dir=work)

    with pytest.raises(PolicyError, match=r"^not readable: .* \(policy\.read\.deny\)$"):
        policy.check_read(path)
    with pytest.raises(PolicyError, match=r"^not writable: .* \(policy\.write\.deny\)$"):
        policy.check_write(path)


def test_everything_else_is_readable_and_the_working_directory_writable(home: Path, work: Path) -> None:
    policy = SessionPolicy.of(working_dir=work)

    assert policy.check_read("/etc/hostname") == Path("/etc/hostname").resolve()
    assert policy.check_read("/dev/null") == Path("/dev/null")
    assert policy.check_write("src/new.py") == work.resolve() / "src/new.py"
    with pytest.raises(PolicyError, match=r"policy\.write\.allow"):
        policy.check_write(home / "notes.md")
    with pytest.raises(PolicyError, match=r"policy\.write\.allow"):
        policy.check_write("../elsewhere.txt")


def test_a_repository_s_own_files_are_readable_but_not_writable_at_any_depth(home: Path, work: Path) -> None:
    policy = SessionPolicy.of(working_dir=work)

    assert policy.check_read(".git/config")
    for path in (".git/config", "sub/module/.git/config", ".GIT/hooks/pre-commit"):
        with pytest.raises(PolicyError, match=r"policy\.write\.deny"):
            policy.check_write(path)
    assert policy.check_write(".github/workflows/ci.yml")
    assert policy.check_write(".gitignore")


def test_a_link_leads_where_it_leads_whatever_it_is_called(home: Path, work: Path) -> None:
    (work / "notes").symlink_to(home / ".ssh")
    (work / "out").symlink_to(home)
    policy = SessionPolicy.of(working_dir=work)

    with pytest.raises(PolicyError, match="not readable: notes/id_rsa"):
        policy.check_read("notes/id_rsa")
    with pytest.raises(PolicyError, match="not writable: out/x"):
        policy.check_write("out/x")


def test_a_secret_place_stays_one_when_it_is_a_link_itself(home: Path, work: Path, tmp_path: Path) -> None:
    (tmp_path / "real-aws").mkdir()
    (home / ".aws").symlink_to(tmp_path / "real-aws")
    policy = SessionPolicy.of(working_dir=work)

    for path in (home / ".aws/credentials", tmp_path / "real-aws/credentials"):
        with pytest.raises(PolicyError):
            policy.check_read(path)


def test_a_link_made_later_at_a_secret_place_hides_nothing(home: Path, work: Path, tmp_path: Path) -> None:
    policy = SessionPolicy.of(working_dir=work)
    (home / ".kube").symlink_to(tmp_path)

    with pytest.raises(PolicyError):
        policy.check_read("~/.kube/work")


def test_a_walk_leaves_out_exactly_what_may_not_be_read(home: Path, work: Path) -> None:
    policy = SessionPolicy.of({"read": {"deny": ["private", str(home / "a b/c")]}}, working_dir=work)
    entries = [".ssh", ".ssh.pub", "private", "deep/Private", "a b", "a b/c", "notes"]

    denied = policy.read.denied_below(home)

    assert [entry for entry in entries if denied.covers(entry)] == [".ssh", "private", "deep/Private", "a b/c"]
    assert all(denied.covers(entry) != policy.may_read(home / entry) for entry in entries)
    assert "proc" in policy.read.denied_below(Path("/")).places


def test_a_place_is_taken_back_by_its_exact_name_only(home: Path, work: Path) -> None:
    named = SessionPolicy.of({"read": {"allow": ["/", "~/.ssh"]}}, working_dir=work)
    above = SessionPolicy.of({"read": {"allow": ["/", "~"]}}, working_dir=work)
    below = SessionPolicy.of({"read": {"allow": ["/", "~/.ssh/id_rsa"]}}, working_dir=work)

    assert named.check_read("~/.ssh/id_rsa")
    for policy in (above, below):
        with pytest.raises(PolicyError):
            policy.check_read("~/.ssh/id_rsa")


def test_what_is_denied_adds_up_and_what_is_allowed_replaces(home: Path, work: Path) -> None:
    policy = SessionPolicy.of(
        {"read": {"allow": ["."], "deny": ["private"]}, "write": {"allow": ["out"]}}, working_dir=work
    )

    assert policy.check_read("a.txt")
    assert policy.check_write("out/a.txt")
    for refused in ("~/notes", "private/a", "sub/private/a", "~/.ssh/id_rsa"):
        with pytest.raises(PolicyError):
            policy.check_read(refused)
    with pytest.raises(PolicyError):
        policy.check_write("a.txt")


def test_a_refusal_names_the_file_and_line_of_its_rule(home: Path, work: Path) -> None:
    origins = {("read.deny", "data"): "foundation/coding line 31"}
    policy = SessionPolicy.of({"read": {"deny": ["data"]}}, working_dir=work, origin_of=lambda *rule: origins[rule])

    with pytest.raises(PolicyError) as refused:
        policy.check_read("data/x")

    assert str(refused.value) == "not readable: data/x (policy.read.deny, foundation/coding line 31)"
    assert refused.value.rule == "read.deny"


def test_a_tool_s_own_lists_narrow_and_never_widen(home: Path, work: Path) -> None:
    policy = SessionPolicy.of(working_dir=work).narrowed(
        write_allow=["src", "/"], read_deny=["secret"], read_allow=["/", "~/.ssh"]
    )

    assert policy.check_write("src/a.py")
    for refused in ("~/.ssh/id_rsa", "secret/x"):
        with pytest.raises(PolicyError):
            policy.check_read(refused)
    with pytest.raises(PolicyError):
        policy.check_write("/srv/a")


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://localhost:8080/",
        "http://2130706433/",
        "http://[::ffff:7f00:1]/",
        "http://10.1.2.3/",
        "http://169.254.169.254/latest/meta-data",
        "http://printer.local/",
        "http://metadata.google.internal/",
    ],
)
def test_private_networks_are_not_reachable(work: Path, url: str) -> None:
    with pytest.raises(PolicyError, match=r"policy\.network\.deny"):
        SessionPolicy.of(working_dir=work).check_url(url)


def test_hosts_are_allowed_and_denied_by_name_and_network(work: Path) -> None:
    policy = SessionPolicy.of(
        {"network": {"allow": ["example.org", "*.example.com", "203.0.113.0/24"], "deny": ["bad.example.com"]}},
        working_dir=work,
    )

    assert policy.check_url("https://example.org/x") == "example.org"
    assert policy.check_url("https://api.example.com/") == "api.example.com"
    for refused in ("https://bad.example.com/", "https://example.net/", "https://user:pw@/"):
        with pytest.raises(PolicyError) as error:
            policy.check_url(refused)
        assert "pw" not in str(error.value)


def test_programs_are_not_given_secrets(work: Path) -> None:
    policy = SessionPolicy.of(
        {"environment": {"pass": ["*", "DEPLOY_TOKEN"], "deny": ["INTERNAL_*"]}}, working_dir=work
    )
    given = {
        "PATH": "/bin",
        "LANG": "C",
        "OPENAI_API_KEY": "x",
        "aws_profile": "x",
        "DB_PASSWORD": "x",
        "INTERNAL_URL": "x",
        "SSH_AUTH_SOCK": "x",
        "DEPLOY_TOKEN": "asked for by name",
    }

    assert set(policy.environment(given)) == {"PATH", "LANG", "DEPLOY_TOKEN"}


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"reed": {}}, "policy.reed is unknown (known: read, write, network, environment)"),
        ({"read": {"allow": "/"}}, "policy.read.allow must be a list of texts, got '/'"),
        ({"read": ["/"]}, "policy.read must have the lists allow and deny, got ['/']"),
        ({"environment": {"allow": []}}, "policy.environment must have the lists pass and deny, got 'allow'"),
        (["read"], "policy must be a mapping with read, write, network, environment, got ['read']"),
    ],
)
def test_what_is_not_a_policy_is_refused_by_name(work: Path, rules: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match="policy") as error:
        SessionPolicy.of(rules, working_dir=work)

    assert str(error.value) == message


def test_a_path_leads_to_the_same_place_whether_it_exists_or_not(home: Path, work: Path) -> None:
    (work / "src").mkdir()
    (work / "link").symlink_to(work / "src")
    (work / "dangling").symlink_to(home / ".ssh/new")
    (work / "loop").symlink_to(work / "loop")
    for name in ("plain.py", "kept (deleted)"):
        (work / "src" / name).touch()
    policy = SessionPolicy.of(working_dir=work)
    real = work.resolve()

    for name in ("plain.py", "kept (deleted)", "missing.py", "none/missing.py"):
        assert policy.check_write(f"link/{name}") == real / "src" / name
    assert policy.check_read("/dev/null") == Path("/dev/null")
    assert policy.check_read(work / "loop") == real / "loop"
    with pytest.raises(PolicyError):
        policy.check_read("dangling")


@pytest.mark.parametrize(
    "path", ["link/../id_rsa", "link/../../.ssh/id_rsa", "./link/.././id_rsa", "{work}/link/../id_rsa"]
)
def test_a_step_up_behind_a_link_leads_where_the_system_goes(home: Path, work: Path, path: str) -> None:
    (home / ".ssh/keys").mkdir(parents=True, exist_ok=True)
    (home / ".ssh/id_rsa").write_text("secret")
    (work / "link").symlink_to(home / ".ssh/keys")
    (work / "process").symlink_to("/proc/self")
    policy = SessionPolicy.of(working_dir=work)

    for given in (path.format(work=work), "process/../self/environ"):
        with pytest.raises(PolicyError):
            policy.check_read(given)
        with pytest.raises(PolicyError):
            policy.check_write(given)


def test_a_path_with_steps_up_and_no_links_means_what_it_says(home: Path, work: Path) -> None:
    policy = SessionPolicy.of(working_dir=work)

    assert policy.check_read("new/../a.txt") == work / "a.txt"
    assert policy.check_write("new/deeper/../../a.txt") == work / "a.txt"


def test_a_name_names_no_host_below_it() -> None:
    network = NetworkAccess(allow=("*", "docs.example.org", "*.internal.example", "10.0.0.0/8"), deny=())

    named = ("docs.example.org", "a.internal.example", "a.b.internal.example", "10.1.2.3")
    asked = ("evil.docs.example.org", "example.org", "internal.example", "notdocs.example.org", "11.0.0.1")
    assert [network.is_named(host) for host in (*named, *asked)] == [True] * 4 + [False] * 5
    network.check("https://evil.docs.example.org/")


def test_a_host_below_one_that_is_named_is_asked_about_when_somebody_else_names_it() -> None:
    network = NetworkAccess(allow=("*", "docs.example.org"), deny=())

    assert not network.narrowed(["evil.docs.example.org"], []).is_named("evil.docs.example.org")
    assert network.narrowed(["docs.example.org"], []).is_named("docs.example.org")
