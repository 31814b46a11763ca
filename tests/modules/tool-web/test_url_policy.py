"""Which URLs are fetched: nothing private is reached by any spelling, any name or any redirect."""

import logging
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

PUBLIC = "93.184.216.34"
OTHER_PUBLIC = "151.101.1.140"

BLOCKED = [
    "http://127.0.0.1:{port}/",
    "http://localhost",
    "http://localhost.:{port}/",
    "http://sub.localhost:{port}/",
    "http://LOCALHOST:{port}/",
    "http://2130706433:{port}/",
    "http://0x7f.1:{port}/",
    "http://0177.0.0.1:{port}/",
    "http://127.1:{port}/",
    "http://\uff11\uff12\uff17.0.0.1:{port}/",
    "http://[::1]:{port}/",
    "http://[::ffff:127.0.0.1]:{port}/",
    "http://[64:ff9b::7f00:1]:{port}/",
    "http://[2002:7f00:1::]:{port}/",
    "http://[::]:{port}/",
    "http://[fe80::1]/",
    "http://[fd00::1]/",
    "http://169.254.169.254",
    "http://100.64.0.1/",
    "http://192.0.0.8/",
    "http://172.31.0.1/",
    "http://224.0.0.1/",
    "http://255.255.255.255/",
    "http://0.0.0.0:{port}/",
    "file:///x",
    "ftp://example.com/",
    "gopher://example.com/",
    "http://u:p@host",
    "http://user@example.com/",
    "http:///path",
    "//example.com/",
    "example.com",
    "http://exa mple.com/",
    "http://example.com:0/",
    "http://example.com:99999/",
    "http://1.2.3.4.5/",
    "http://256.1.1.1/",
    "http://exam%70le.com/",
    "http://[::1%25eth0]/",
    "http://a\\@example.com/",
    "http://example.com/\x00",
    "http://example.com/\ud800",
    "http://example.com/" + "x" * 8192,
]


@pytest.mark.parametrize("url", BLOCKED, ids=range(len(BLOCKED)))
async def test_by_default_no_spelling_of_a_private_or_unusable_url_is_fetched(
    web: Any, site: Any, internet: Any, code_of: Any, url: str
) -> None:
    result = await web.fetch(url.format(port=site.port))

    assert code_of(result) == "blocked_url"
    assert result.output.startswith("Invalid or blocked URL: ")
    assert (site.connections, internet.connected) == (0, [])
    (event,) = web.events
    assert (event["code"], event["status_code"], event["success"]) == ("blocked_url", None, False)


async def test_a_refusal_names_the_url_without_its_credentials(web: Any) -> None:
    result = await web.fetch("http://user:secret@example.com/page")

    assert result.output == "Invalid or blocked URL: http://example.com/page"
    assert web.events[0]["url"] == "http://example.com/page"


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["10.1.2.3"],
        ["169.254.169.254"],
        ["::1"],
        ["fe80::1"],
        ["::ffff:10.0.0.1"],
        [PUBLIC, "127.0.0.1"],
    ],
    ids=str,
)
async def test_a_name_with_any_address_that_is_not_public_is_refused_after_it_is_looked_up(
    web: Any, site: Any, internet: Any, code_of: Any, addresses: list[str]
) -> None:
    internet.name("evil.example", addresses)
    internet.place(PUBLIC, site)

    assert code_of(await web.fetch(f"http://evil.example:{site.port}/")) == "blocked_url"
    assert internet.looked_up == ["evil.example"]
    assert internet.connected == []


async def test_a_public_page_is_fetched_from_its_address_with_the_name_as_host(
    web: Any, site: Any, internet: Any
) -> None:
    internet.name("page.example", [PUBLIC])
    internet.place(PUBLIC, site)
    site.put("/hello?a=1", "Hello")

    output = await web.page("http://Page.Example./hello?a=1#part")

    assert output["content"] == "Hello"
    assert internet.connected == [PUBLIC]
    assert site.seen[0].headers["host"] == "page.example"
    assert output["source_url"] == "http://page.example/hello?a=1"


async def test_a_name_that_changes_its_answer_is_connected_to_at_the_checked_address_only(
    web: Any, open_site: Any, internet: Any
) -> None:
    public, private = await open_site(), await open_site()
    internet.name("rebinding.example", [PUBLIC], ["127.0.0.1"])
    internet.place(PUBLIC, public)
    for one, text in ((public, "public"), (private, "private")):
        one.put("/", text)

    output = await web.page(f"http://rebinding.example:{private.port}/")

    assert output["content"] == "public"
    assert internet.looked_up == ["rebinding.example"]
    assert internet.connected == [PUBLIC]
    assert private.connections == 0


async def test_a_name_that_changes_its_answer_between_two_fetches_is_refused_at_the_second(
    web: Any, site: Any, internet: Any, code_of: Any
) -> None:
    internet.name("rebinding.example", [PUBLIC], ["127.0.0.1"])
    internet.place(PUBLIC, site)
    site.put("/", "public")

    assert (await web.fetch("http://rebinding.example/")).success
    assert code_of(await web.fetch(f"http://rebinding.example:{site.port}/")) == "blocked_url"
    assert internet.connected == [PUBLIC]


async def test_a_redirect_to_a_name_that_has_become_private_is_refused(
    web: Any, open_site: Any, internet: Any, code_of: Any
) -> None:
    public, private = await open_site(), await open_site()
    internet.name("rebinding.example", [PUBLIC], ["127.0.0.1"])
    internet.place(PUBLIC, public)
    public.redirect("/", f"http://rebinding.example:{private.port}/secret")
    private.put("/secret", "secret")

    assert code_of(await web.fetch("http://rebinding.example/")) == "blocked_url"
    assert (public.paths, private.connections) == (["/"], 0)


async def test_the_next_address_is_tried_when_one_does_not_answer(web: Any, site: Any, internet: Any) -> None:
    class Closed:
        port = 1

    internet.name("two.example", [OTHER_PUBLIC, PUBLIC])
    internet.place(OTHER_PUBLIC, Closed())
    internet.place(PUBLIC, site)
    site.put("/", "there")

    assert (await web.page("http://two.example/"))["content"] == "there"
    assert internet.connected == [OTHER_PUBLIC, PUBLIC]


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for `secure.example` and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("certificates are made with openssl")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subject = ["-subj", "/CN=secure.example", "-addext", "subjectAltName=DNS:secure.example"]
    made_by = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*made_by, *subject, *files], check=True, capture_output=True)
    return certificate, key


async def test_tls_is_spoken_to_the_checked_address_under_the_name_of_the_host(
    mount_web: Any,
    open_site: Any,
    internet: Any,
    code_of: Any,
    certificate: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    asked_for: list[str | None] = []
    context.sni_callback = lambda connection, name, _: asked_for.append(name)
    site = await open_site(context=context)
    site.put("/", "safe")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    for name in ("secure.example", "other.example"):
        internet.name(name, [PUBLIC], ["127.0.0.1"])
    internet.place(PUBLIC, site)
    web = await mount_web()

    output = await web.page("https://secure.example/")
    other = await web.fetch("https://other.example/")

    assert output["content"] == "safe"
    assert asked_for == ["secure.example", "other.example"]
    assert code_of(other) == "network_error"  # the certificate is not for that name
    assert internet.connected == [PUBLIC, PUBLIC]


async def test_a_name_that_begins_with_a_blocked_number_is_not_blocked(web: Any, site: Any, internet: Any) -> None:
    internet.name("v10.example.com", [PUBLIC])
    internet.name("10.example.com", [PUBLIC])
    internet.place(PUBLIC, site)
    site.put("/", "ten")

    assert (await web.page("http://v10.example.com/"))["content"] == "ten"
    assert (await web.page("http://10.example.com/"))["content"] == "ten"


async def test_a_plan_with_its_own_blocked_domains_still_has_the_private_guard(
    mount_web: Any, site: Any, code_of: Any, caplog: pytest.LogCaptureFixture
) -> None:
    web = await mount_web(blocked_domains=["ads.example"])

    assert code_of(await web.fetch(site.url)) == "blocked_url"
    assert code_of(await web.fetch("http://x.ads.example/")) == "blocked_url"
    assert site.connections == 0
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize(
    "config",
    [{"blocked_domains": []}, {"block_private_networks": False, "blocked_domains": ["x.example"]}],
    ids=["no blocked domain", "switched off"],
)
async def test_the_private_guard_can_be_lifted_with_one_warning(
    mount_web: Any, site: Any, caplog: pytest.LogCaptureFixture, config: dict[str, Any]
) -> None:
    web = await mount_web(**config)

    assert (await web.page(site.put("/", "local")))["content"] == "local"
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1


async def test_no_blocked_domain_together_with_the_guard_keeps_the_guard(
    mount_web: Any, site: Any, code_of: Any, caplog: pytest.LogCaptureFixture
) -> None:
    web = await mount_web(blocked_domains=[], block_private_networks=True)

    assert code_of(await web.fetch(site.url)) == "blocked_url"
    assert site.connections == 0
    assert [record for record in caplog.records if record.levelno == logging.WARNING] == []


async def test_blocked_numbers_hold_for_every_spelling_of_an_address_without_the_guard_too(
    mount_web: Any, site: Any, code_of: Any
) -> None:
    web = await mount_web(block_private_networks=False)

    for host in ("127.0.0.1", "2130706433", "[::ffff:7f00:1]", "localhost", "10.0.0.1", "0xa.1", "192.168.3.4"):
        assert code_of(await web.fetch(f"http://{host}:{site.port}/")) == "blocked_url"
    assert site.connections == 0


async def test_only_allowed_domains_are_fetched_when_there_are_any(
    mount_web: Any, site: Any, internet: Any, code_of: Any
) -> None:
    web = await mount_web(allowed_domains=["Docs.Example"])
    for host in ("docs.example", "v2.docs.example", "notdocs.example"):
        internet.name(host, [PUBLIC])
    internet.place(PUBLIC, site)
    site.put("/", "docs")

    assert (await web.fetch("http://docs.example/")).success
    assert (await web.fetch("http://v2.docs.example/")).success
    assert code_of(await web.fetch("http://notdocs.example/")) == "blocked_url"


async def test_a_host_that_is_allowed_by_name_may_be_private_but_not_what_is_below_it(
    mount_web: Any, site: Any, internet: Any, code_of: Any
) -> None:
    web = await mount_web(allowed_domains=["intranet.example"])
    for host in ("intranet.example", "sub.intranet.example"):
        internet.name(host, ["127.0.0.1"])
    site.put("/", "inside")

    assert (await web.page(f"http://intranet.example:{site.port}/"))["content"] == "inside"
    assert code_of(await web.fetch(f"http://sub.intranet.example:{site.port}/")) == "blocked_url"


@pytest.mark.parametrize("value", [7, [None], {"a": 1}], ids=["number", "not text", "mapping"])
async def test_lists_of_domains_that_are_none_close_rather_than_open(
    mount_web: Any, site: Any, internet: Any, code_of: Any, value: Any
) -> None:
    internet.name("page.example", [PUBLIC])

    assert code_of(await (await mount_web(allowed_domains=value)).fetch("http://page.example/")) == "blocked_url"
    assert code_of(await (await mount_web(blocked_domains=value)).fetch(site.url)) == "blocked_url"
    assert internet.connected == []


async def test_a_redirect_to_a_blocked_host_is_refused_and_the_target_not_contacted(
    mount_web: Any, open_site: Any, code_of: Any
) -> None:
    first, target = await open_site(), await open_site()
    web = await mount_web(blocked_domains=["blocked.example", "localhost"], block_private_networks=False)
    first.redirect("/a", f"http://localhost:{target.port}/")

    result = await web.fetch(first.url + "/a")

    assert code_of(result) == "blocked_url"
    assert result.output == f"Invalid or blocked URL: http://localhost:{target.port}/"
    assert (first.paths, target.connections) == (["/a"], 0)
    (event,) = web.events
    assert (event["code"], event["status_code"]) == ("blocked_url", None)


@pytest.mark.parametrize(
    "to", ["http://127.0.0.1:{port}/", "http://169.254.169.254/", "file:///etc/passwd", "http://["]
)
async def test_every_redirect_is_checked_like_the_first_url(
    web: Any, open_site: Any, internet: Any, code_of: Any, to: str
) -> None:
    public, private = await open_site(), await open_site()
    internet.name("page.example", [PUBLIC])
    internet.place(PUBLIC, public)
    public.redirect("/", "/second")
    public.redirect("/second", to.format(port=private.port))

    assert code_of(await web.fetch("http://page.example/")) == "blocked_url"
    assert public.paths == ["/", "/second"]
    assert (private.connections, internet.connected) == (0, [PUBLIC, PUBLIC])


@pytest.mark.parametrize("scheme", ["https", "http"])
async def test_a_redirect_from_https_to_http_is_followed_only_if_the_first_url_was_http(
    mount_web: Any,
    open_site: Any,
    internet: Any,
    certificate: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    scheme: str,
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    secure, plain = await open_site(context=context), await open_site()
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    internet.name("secure.example", [PUBLIC])
    internet.name("plain.example", [OTHER_PUBLIC])
    internet.place(PUBLIC, secure)
    internet.place(OTHER_PUBLIC, plain)
    plain.redirect("/start", "https://secure.example/start")
    secure.redirect("/start", "http://plain.example/end")
    plain.put("/end", "end")
    web = await mount_web()

    result = await web.fetch(f"{scheme}://{'secure' if scheme == 'https' else 'plain'}.example/start")

    if scheme == "http":
        assert result.output["content"] == "end"
    else:
        assert result.error["code"] == "blocked_url"
        assert plain.connections == 0


async def test_proxies_of_the_environment_are_used_only_without_the_guard(
    mount_web: Any, open_site: Any, internet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, public = await open_site(), await open_site()
    internet.name("page.example", [PUBLIC])
    internet.place(PUBLIC, public)
    proxy.put("http://page.example/", "by proxy")
    public.put("/", "directly")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, proxy.url)

    guarded, open_one = await mount_web(), await mount_web(blocked_domains=[])

    assert (await guarded.page("http://page.example/"))["content"] == "directly"
    assert (await open_one.page("http://page.example/"))["content"] == "by proxy"
