"""`amplifier provider`: who answers, with which key, and which models there are."""

from __future__ import annotations

import asyncio
import getpass
import os
import shlex
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import typer

from amplifier_cli.command_group import examples, new_group
from amplifier_cli.config import resolve_app_config
from amplifier_cli.failures import UsageError, interruptible, pick, vendor_message
from amplifier_cli.installation import install_command, install_words, missing_packages
from amplifier_cli.open_home import in_home
from amplifier_cli.options import Json
from amplifier_cli.terminal.render import write, write_json, write_table
from amplifier_core import AmplifierSession
from amplifier_core.exceptions import AmplifierError
from amplifier_core.imported_code import entry_points
from amplifier_core.llm_errors import LLMError
from amplifier_core.mount_plan import MountPlan
from amplifier_core.packages import provider_name, type_from_prefix
from amplifierd.home import Home
from amplifierd.plans.runtime_values import key_variables
from amplifierd.problems import hint_for

app = new_group(
    "List providers, store their keys, and test them.",
    "amplifier provider list",
    "amplifier provider add anthropic",
    "amplifier provider test",
    "amplifier provider models openai",
)

ProviderArgument = Annotated[
    str, typer.Argument(metavar="PROVIDER", help="Its name, for example anthropic.", show_default=False)
]


class ProviderFailure(AmplifierError):
    """A provider cannot be started, or does not answer."""


ModelOption = Annotated[str | None, typer.Option("-m", "--model", help="A model other than its default.")]


@app.command("list", epilog=examples("amplifier provider list", "amplifier provider list --json"))
def list_providers(ctx: typer.Context, as_json: Json = False) -> None:
    """List the installed providers and where their keys come from."""

    async def work(home: Home) -> None:
        found = [{"provider": provider_name(name), "module": name, **key_of(home, name)} for name in installed()]
        if as_json:
            write_json(found)
            return
        rows = [(each["provider"], each["key"] or "none", each["from"] or f"set {each['variable']}") for each in found]
        write_table(("PROVIDER", "KEY", "FROM"), rows)

    in_home(ctx, work)


@app.command(epilog=examples("amplifier provider add anthropic", "pass show openai | amplifier provider add openai"))
def add(
    ctx: typer.Context,
    provider: ProviderArgument,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the stored key.")] = False,
) -> None:
    """Store a provider's key in the system's keyring, or in a file that only you can read.

    Type the key at the prompt, which does not show it, or pipe it in. It is never an argument, which other users could
    see.
    """

    async def work(home: Home) -> None:
        module_id = find_provider(provider)
        if remove:
            write("the key is removed" if home.keys.remove(module_id) else "there was no stored key")
            return
        key = read_key(f"Key for {provider_name(module_id)}")
        where = home.keys.set(module_id, key)
        place = "the system's keyring" if where == "keyring" else str(home.paths.secrets_file)
        write(f"the key is stored in {place}; try it: amplifier provider test {provider_name(module_id)}")

    in_home(ctx, work)


@app.command(epilog=examples("amplifier provider install openai"))
def install(ctx: typer.Context, provider: ProviderArgument) -> None:
    """Install the packages that a provider needs and that are missing, in the way that Amplifier was installed."""

    async def work(home: Home) -> None:
        module_id = find_provider(provider)
        missing = missing_packages(module_id)
        if not missing:
            write(f"{module_id} has all the packages it needs")
            return
        command = install_command(missing)
        write(shlex.join(command))
        ran = await asyncio.create_subprocess_exec(*command)
        if await ran.wait() or missing_packages(module_id):
            hint = "see what it said above; offline, download the packages elsewhere first"
            raise ProviderFailure(f"{', '.join(missing)} could not be installed for {module_id}", hint=hint)
        write(f"{module_id} is ready; try it: amplifier provider test {provider_name(module_id)}")

    in_home(ctx, work)


@app.command(
    "test",
    epilog=examples("amplifier provider test", "amplifier provider test openai -m gpt-5.5"),
)
def try_provider(
    ctx: typer.Context,
    provider: Annotated[
        str | None,
        typer.Argument(metavar="[PROVIDER]", help="Its name; else the one of your settings.", show_default=False),
    ] = None,
    model: ModelOption = None,
    as_json: Json = False,
) -> None:
    """Send a provider a short request, and say whether and how fast it answered."""

    async def work(home: Home) -> None:
        module_id = find_provider(provider) if provider else configured_provider(home)
        async with provider_session(home, module_id, model) as session:
            begun = time.monotonic()
            answer = await session.execute("Answer with the one word: ok")
            seconds = time.monotonic() - begun
        if as_json:
            write_json({"provider": provider_name(module_id), "answer": answer, "seconds": round(seconds, 3)})
        else:
            write(f"{provider_name(module_id)} answered within {seconds:.1f} s: {answer.strip()}")

    in_home(ctx, work)


@app.command(epilog=examples("amplifier provider models anthropic", "amplifier provider models openai --json"))
def models(ctx: typer.Context, provider: ProviderArgument, as_json: Json = False) -> None:
    """List a provider's models."""

    async def work(home: Home) -> None:
        async with provider_session(home, find_provider(provider), None) as session:
            mounted = next(iter((session.coordinator.get("providers") or {}).values()))
            found = [model.model_dump(mode="json") for model in await mounted.list_models()]
        if as_json:
            write_json(found)
            return
        rows = [(each.get("id"), each.get("context_window"), each.get("max_output_tokens")) for each in found]
        write_table(("MODEL", "WINDOW", "MOST OUTPUT"), rows, empty="It lists no models")

    in_home(ctx, work)


def configured_provider(home: Home) -> str:
    """Return the provider of the settings, else the first one that has a key.

    Raises:
        UsageError: there is none.
    """
    chosen = resolve_app_config(home=home.paths.home).values.provider
    if chosen:
        return find_provider(chosen)
    ready = [name for name in installed() if (found := key_of(home, name))["variable"] and found["key"]]
    if not ready:
        raise UsageError("no provider is configured", hint="amplifier init finds one; or name it")
    return ready[0]


def require_packages(module_id: str) -> None:
    """See to it that the packages of a module are here.

    Raises:
        ProviderFailure: some are missing.
    """
    if missing := missing_packages(module_id):
        hint = f"amplifier provider install {provider_name(module_id)}, which is: {install_words(missing)}"
        raise ProviderFailure(f"{module_id} needs packages that are not installed: {', '.join(missing)}", hint=hint)


def installed() -> list[str]:
    """Return the ids of the installed providers."""
    return sorted({point.name for point in entry_points() if type_from_prefix(point.name) == "provider"})


def find_provider(typed: str) -> str:
    """Return the module of a provider that was typed with or without `provider-`."""
    return pick(typed, installed(), "provider", key=provider_name, see="amplifier provider list")


def key_of(home: Home, module_id: str) -> dict[str, Any]:
    """Return the masked key of a provider, where it comes from, and the variable that can hold one."""
    stored = {key.module_id: key for key in home.keys.list()}
    variables = key_variables(next(MountPlan({"providers": [{"module": module_id}]}).entries()))
    variable = next(iter(variables), None)
    found = next((name for name in variables if os.environ.get(name, "").strip()), None)
    if module_id in stored:
        return {"key": stored[module_id].masked, "from": stored[module_id].stored_in, "variable": variable}
    return {
        "key": "set" if found else None,
        "from": found or (None if variables else "needs none"),
        "variable": variable,
    }


def read_key(question: str) -> str:
    """Return a key from a pipe, or one that is typed without being shown.

    Raises:
        UsageError: it is empty.
    """
    with interruptible():
        key = getpass.getpass(f"{question}: ") if sys.stdin.isatty() else sys.stdin.readline()
    if not key.strip():
        raise UsageError("the key is empty", hint="type it, or send it through a pipe")
    return key.strip()


@asynccontextmanager
async def provider_session(home: Home, module_id: str, model: str | None) -> AsyncIterator[AmplifierSession]:
    """Start a session that has nothing but a provider; what the provider refuses is told with what to do.

    Raises:
        ProviderFailure: it cannot be started, or does not answer.
    """
    require_packages(module_id)
    key = home.keys.find(module_id)
    config = {**({"api_key": key} if key else {}), **({"default_model": model} if model else {})}
    plan = {
        "session": {"orchestrator": "loop-basic", "context": "context-simple"},
        "providers": [{"module": module_id, "config": config}],
    }
    name = provider_name(module_id)
    try:
        async with AmplifierSession(plan) as session:
            yield session
    except LLMError as error:
        text = f"{name} does not answer: {vendor_message(str(error)) or error}"
        raise ProviderFailure(text, hint=hint_for(error)) from error
    except RuntimeError as error:
        raise ProviderFailure(
            f"{name} cannot be started: {error}", hint=f"amplifier provider add {name} stores a key"
        ) from error
