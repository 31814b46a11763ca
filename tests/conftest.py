"""What holds for every test: none leaves the machine or touches a home, and properties are checked alike each time."""

import gc
import ipaddress
import os
import re
import signal
import sys
import uuid
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
import warm_python
from forked_run import ForkedRun
from hypothesis import settings

settings.register_profile("suite", derandomize=True, deadline=None, max_examples=30)
settings.register_profile("fuzz", deadline=None, max_examples=500)  # make fuzz
settings.register_profile("explore", deadline=None, max_examples=5_000)  # pytest --hypothesis-profile explore
settings.load_profile("suite")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell; what tests start inherits it
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processes", type=int, default=1, help="run the tests in so many processes")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.processes > 1:
        config.pluginmanager.register(ForkedRun(config.option.processes))
        warm_python.shared_keeper()  # of all processes


gc.disable()  # until all tests are known: what is made until then stays


def pytest_collection_finish() -> None:
    """Look for garbage among what the tests leave, and not every time among the thousands of tests as well."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # most of it goes without being looked for
    gc.enable()


@pytest.fixture(scope="module")
def frozen_past() -> None:
    """Let the tests of a file that look for garbage look only among what they leave themselves."""
    gc.collect()
    gc.freeze()


_numbers = count()
_LOCAL_NAMES = {"", "localhost"}
_attempts: list[str] = []


class LeavesTheMachineError(RuntimeError):
    """Raised in the place of a connection or a name look-up that goes beyond loopback."""


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None


def _is_near(host: str) -> bool:
    address = _address(host)
    return address.is_loopback or address.is_unspecified if address else host in _LOCAL_NAMES


def _asks_nobody(host: object) -> bool:
    name = host.decode() if isinstance(host, bytes) else str(host)
    return name in _LOCAL_NAMES or _address(name) is not None


def _stay_on_the_machine(event: str, args: tuple[object, ...]) -> None:
    if not event.startswith("socket."):  # as nearly all do not
        return
    match event, args:
        case (("socket.connect" | "socket.sendto"), (_, (str() as host, *_))) if not _is_near(host):
            target = f"connect to {host}"
        case (("socket.getaddrinfo" | "socket.gethostbyname"), (host, *_)) if not _asks_nobody(host):
            target = f"look up {host!r}"
        case _:
            return
    _attempts.append(target)
    raise LeavesTheMachineError(f"a test tried to {target}; tests use loopback and Unix sockets only")


sys.addaudithook(_stay_on_the_machine)  # it sees every socket of the process, whoever opens it


@pytest.fixture(scope="session", autouse=True)
def home_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give the tests a home directory of their own, so that none writes into that of whoever runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of a test, as pytest gives it one, but found without looking at those of all tests before it."""
    name = re.sub(r"\W", "_", request.node.name)[:24]
    return tmp_path_factory.mktemp(f"{name}{next(_numbers)}", numbered=False)


@pytest.fixture(scope="session")
def postgres_server(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address, without a database, of the PostgreSQL server that the whole run shares; started when needed."""
    from postgres_server import shared_server  # its packages are loaded where they are used

    base = tmp_path_factory.getbasetemp()
    is_alone = pytestconfig.option.processes == 1
    return shared_server(base if is_alone else base.parent, os.getpid() if is_alone else os.getppid())


@pytest.fixture(scope="session")
def postgres_database(postgres_server: str) -> str:
    """A database of this process of the run."""
    from postgres_server import new_database

    return new_database(postgres_server)


@pytest.fixture
def postgres_address(postgres_database: str) -> str:
    """The address of a store of its own for a test; it is empty."""
    return f"{postgres_database}?schema=test_{uuid.uuid4().hex}"


@pytest.fixture(autouse=True)
def stays_on_the_machine() -> Iterator[None]:
    """Fail a test that tried to leave the machine, even when the code under test swallowed the refusal."""
    yield
    attempts = ", ".join(_attempts)
    _attempts.clear()
    assert not attempts, f"the test tried to {attempts}"
