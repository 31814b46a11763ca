"""`amplifier init`: from a fresh machine to an agent that works."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import httpx2
import typer

from amplifier_cli.command_group import examples, single_command
from amplifier_cli.config import SettingsFiles
from amplifier_cli.failures import interruptible, pick
from amplifier_cli.open_home import in_home
from amplifier_cli.terminal.render import counted, styled, write
from amplifier_core.llm_errors import AccessDeniedError, AuthenticationError
from amplifier_core.packages import provider_name
from amplifier_system.urls import is_loopback, trust_for
from amplifierd.home import Home
from amplifierd.yaml_edits import edited, replace_text

from .provider import ProviderFailure, installed, key_of, provider_session, read_key, require_packages

app = single_command()

_LOCAL_SERVERS = (
    "http://127.0.0.1:11434/v1",
    "http://127.0.0.1:1234/v1",
    "http://127.0.0.1:8000/v1",
    "http://127.0.0.1:8080/v1",
)
_PATIENCE_S = 0.5
_TRIAL_S = 15
_SHOWN = 12
_LOCAL_PROFILE = """\
---
profile:
  name: local-server
  version: 1.0.0
  description: A model on this machine, at {address}
  extends: foundation/foundation
  schema_version: 2

providers:
- module: provider-openai
  config:
    base_url: {address}
    default_model: {model}
---

You are an assistant who works in the current directory with the tools you are given.
"""


@app.command(epilog=examples("amplifier init", "amplifier init --provider anthropic", "amplifier init --offline"))
def init(
    ctx: typer.Context,
    provider: Annotated[str | None, typer.Option("-p", "--provider", metavar="NAME", help="Use this provider.")] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Use no model, only the agent that follows fixed rules.")
    ] = False,
) -> None:
    """Find a model and save it in your settings.

    Uses a key from the environment (ANTHROPIC_API_KEY, OPENAI_API_KEY) or a stored one, or else a server on this
    machine that speaks the OpenAI protocol. Otherwise it asks you for a key and stores it in the system's keyring or
    in a file that only you can read. It tries the key by asking for the models, of which you pick one.
    """

    async def work(home: Home) -> None:
        await home.collections.extract_missing()
        settings = await _chosen(home, provider, offline=offline)
        file = SettingsFiles.of(home.paths, Path.cwd()).user

        def change(document: dict[str, str]) -> None:
            for key in ("profile", "provider", "model"):
                document.pop(key, None)
            document.update(settings)

        replace_text(file, edited(file.read_text(encoding="utf-8") if file.exists() else "", change))
        write(f"Saved in {file}: {', '.join(f'{key} {value}' for key, value in settings.items())}")
        write("\nNext:")
        for line in ('amplifier run "List the files here"', "amplifier", "amplifier doctor"):
            write(f"  {styled(line, 'bold')}")

    in_home(ctx, work)


async def _chosen(home: Home, typed: str | None, *, offline: bool) -> dict[str, str]:
    if offline:
        return {"profile": "foundation/offline"}
    known = [name for name in installed() if key_of(home, name)["variable"]]
    if typed is not None:
        name = pick(typed, known, "provider", key=provider_name, see="amplifier provider list")
        return await _with_key(home, name)
    ready = [name for name in known if key_of(home, name)["key"]]
    if ready:
        return await _with_key(home, ready[0])
    if found := await _local_server():
        return _with_local_server(home, *found)
    if sys.stdin.isatty():
        names = [provider_name(name) for name in known]
        with interruptible():
            answer = typer.prompt(f"No key found. Which provider ({', '.join(names)}, or none)?", default=names[0])
        if answer != "none":
            return await _chosen(home, answer, offline=False)
    write("No key and no local model found: using the offline agent, which follows fixed rules.")
    return {"profile": "foundation/offline"}


async def _with_key(home: Home, module_id: str) -> dict[str, str]:
    require_packages(module_id)
    name, found = provider_name(module_id), key_of(home, module_id)
    if not found["key"]:
        where = home.keys.set(module_id, read_key(f"Key for {name}"))
        write(f"The key is stored in the {where}.")
    else:
        write(f"The key for {name} comes from {found['from']}.")
    try:
        model = await _tried(home, module_id)
    except ProviderFailure:
        if not found["key"]:
            home.keys.remove(module_id)
            write("The key is removed again.")
        raise
    return {"profile": "foundation/base", "provider": name, **({"model": model} if model else {})}


async def _tried(home: Home, module_id: str) -> str | None:
    """Ask a provider for its models; return the one that a person picks, None for the provider's own choice.

    Raises:
        ProviderFailure: it refuses the key.
    """
    name = provider_name(module_id)
    variable = f"{name.upper()}_BASE_URL"
    address = os.environ.get(variable, "").strip()
    where = f"{name} at {address}, which {variable} names" if address else name
    if home.settings.offline and not is_loopback(urlsplit(address).hostname or ""):
        write(f"Offline: the key for {where} is not tried.")
        return None
    write(f"Asking {where} for its models …")
    try:
        async with asyncio.timeout(_TRIAL_S), provider_session(home, module_id, None) as session:
            provider = next(iter((session.coordinator.get("providers") or {}).values()))
            models = [str(model.id) for model in await provider.list_models()]
            default = str(getattr(provider, "default_model", "") or "")
    except TimeoutError:
        write(f"It did not answer within {_TRIAL_S} s, so the key is not tried: amplifier provider test {name}")
        return None
    except ProviderFailure as error:
        if isinstance(error.__cause__, AuthenticationError | AccessDeniedError):
            raise
        write(f"The key is not tried: {error.message}")
        return None
    write(
        f"The key works; {counted(len(models), 'model')}: {', '.join(models[:_SHOWN])}{', …' * (len(models) > _SHOWN)}"
    )
    if not sys.stdin.isatty() or len(models) < 2:
        return None
    with interruptible():
        picked = typer.prompt("Which model?", default=default or models[0])
    return None if picked == default else pick(picked, models, "model")


async def _local_server() -> tuple[str, str] | None:
    """Return the address of a server on this machine that speaks the OpenAI protocol, and its first model."""
    addresses = [os.environ["OPENAI_BASE_URL"]] if os.environ.get("OPENAI_BASE_URL") else [*_LOCAL_SERVERS]
    for address in addresses:
        async with httpx2.AsyncClient(verify=trust_for(address), timeout=_PATIENCE_S, trust_env=False) as client:
            try:
                answer = (await client.get(f"{address.rstrip('/')}/models")).json()
                return address, str(answer["data"][0]["id"])
            except (httpx2.HTTPError, ValueError, KeyError, IndexError, TypeError):
                continue
    return None


def _with_local_server(home: Home, address: str, model: str) -> dict[str, str]:
    file = home.paths.own_profiles / "local-server.md"
    text = _LOCAL_PROFILE.format(address=address, model=model)
    write(f"{address} answers with the model {model}; {file} is a profile for it.")
    if not file.exists():
        replace_text(file, text)
    elif file.read_text(encoding="utf-8") != text:  # it is the user's from then on
        write("That file was there already and stays as it is: see that base_url and default_model in it are right.")
    return {"profile": "local/local-server"}
