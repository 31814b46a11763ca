"""Settings and provider keys: read masked, changed with comments kept."""

from __future__ import annotations

import asyncio
from typing import Any, Literal, Optional

from fastapi import Depends, Request
from pydantic import BaseModel, ConfigDict, Field, create_model

from amplifier_system.urls import shown as without_credentials
from amplifierd.agreements import KEY, Agreement, Agreements
from amplifierd.exceptions import RequestRefusedError
from amplifierd.identifiers import is_module_id
from amplifierd.server.daemon import Daemon
from amplifierd.server.http.dependencies import TheDaemon, note, requires
from amplifierd.server.http.models import Answer, Body
from amplifierd.server.http.routers import api_router
from amplifierd.settings import Settings
from amplifierd.settings_layers import settings_of
from amplifierd.store_address import StoreAddress

router = api_router("/settings", tags=["settings"], dependencies=[Depends(requires("admin"))])


def _partial(model: type[BaseModel], name: str) -> type[BaseModel]:
    """Return a model with the same fields, none of them required; null takes a value out of the file."""
    fields: dict[str, Any] = {}
    for key, info in settings_of(model):
        if isinstance(info.default, BaseModel):
            annotation: Any = _partial(type(info.default), f"{key.title()}{name}")
        else:
            annotation = info.rebuild_annotation()
        fields[key] = (Optional[annotation], Field(default=None, description=info.description))  # noqa: UP045
    return create_model(name, __config__=ConfigDict(extra="forbid"), **fields)


SettingsChange = _partial(Settings, "SettingsChange")


class KeyInfo(Answer):
    provider_id: str
    is_set: bool
    masked_value: str


class SettingsInfo(Answer):
    """The settings that hold, by key; those in `restart_required` were changed and wait for the next start."""

    model_config = ConfigDict(extra="allow")

    config_path: str
    restart_required: list[str]
    api_keys: list[KeyInfo]
    warnings: list[str]


class SettingsChanged(Answer):
    updated: list[str]
    restart_required: bool
    message: str


class AgreementInfo(Answer):
    module: str
    gets: str = Field(description="`key` for the provider's key, else the name of a variable")
    hosts: list[str]


class AgreementList(Answer):
    agreements: list[AgreementInfo]


class AgreementEntry(Body):
    module: str
    gets: str = Field(default=KEY, description="`key` for the provider's key, else the name of a variable")
    hosts: list[str] = Field(default=[], description="the hosts that the module's configuration may name, with scheme")

    @property
    def value(self) -> Agreement:
        return Agreement(self.module, self.gets, tuple(self.hosts))


class AgreementChange(Body):
    agree: list[AgreementEntry] = Field(default=[])
    withdraw: list[AgreementEntry] = Field(default=[])


class KeyChange(Body):
    api_keys: dict[str, str] = Field(default={}, description="by provider module; an empty text removes the key")


class KeysChanged(Answer):
    updated: list[str]
    stored_in: Literal["keyring", "file"] | None = Field(description="null when keys were only removed")
    message: str


@router.get("")
async def get_settings(daemon: TheDaemon) -> SettingsInfo:
    """Show the settings, and which provider keys are stored; the keys themselves are not shown."""
    keys = await asyncio.to_thread(daemon.home.keys.list)
    shown = daemon.home.settings.model_dump(mode="json")
    shown["builds"]["url"] = shown["builds"]["url"] and without_credentials(shown["builds"]["url"])
    shown["auth"]["tokens"] = [text.partition(":")[0] for text in shown["auth"]["tokens"]]
    return SettingsInfo(
        **shown,
        config_path=str(daemon.home.paths.settings_file),
        restart_required=daemon.settings_waiting,
        api_keys=[KeyInfo(provider_id=key.module_id, is_set=True, masked_value=key.masked) for key in keys],
        warnings=list(daemon.home.settings.warnings),
    )


@router.patch("")
async def change_settings(daemon: TheDaemon, request: Request, body: SettingsChange) -> SettingsChanged:  # type: ignore[valid-type] # made above
    """Write settings to `config/daemon.yaml`, keeping comments; null removes one."""
    changes = _flat(body)
    if isinstance(store := changes.get("store"), StoreAddress):
        changes["store"] = await asyncio.to_thread(_without_password, daemon, store)
    if not changes:
        raise RequestRefusedError("no setting is named", code="invalid-request")
    note(request, keys=sorted(changes))
    waiting = await daemon.change_settings(changes)
    text = f"{', '.join(waiting)}: from the next start on" if waiting else "in force now"
    return SettingsChanged(updated=sorted(changes), restart_required=bool(waiting), message=text)


@router.get("/agreements")
async def list_agreements(daemon: TheDaemon) -> AgreementList:
    """List what modules of fetched profiles, bundles and projects may have."""
    known = await asyncio.to_thread(Agreements(daemon.home.paths).list)
    return AgreementList(agreements=[AgreementInfo(**each.to_dict()) for each in known])


@router.patch("/agreements")
async def change_agreements(daemon: TheDaemon, request: Request, body: AgreementChange) -> AgreementList:
    """Agree that such a module gets its key or a variable for the hosts it names, or withdraw that."""
    if not (body.agree or body.withdraw):
        raise RequestRefusedError("no agreement is named", code="invalid-request")
    known = Agreements(daemon.home.paths)
    note(request, keys=sorted({each.module for each in (*body.agree, *body.withdraw)}))
    for each in body.withdraw:
        await asyncio.to_thread(known.remove, each.value)
    if body.agree:
        await asyncio.to_thread(known.add, *(each.value for each in body.agree))
    return await list_agreements(daemon)


@router.patch("/api-keys")
async def change_keys(daemon: TheDaemon, request: Request, body: KeyChange) -> KeysChanged:
    """Store or remove provider keys, for sessions that start from now on."""
    if not body.api_keys:
        raise RequestRefusedError("no key is named", code="invalid-request")
    for module_id, key in body.api_keys.items():
        if not is_module_id(module_id):
            raise RequestRefusedError(f"{module_id!r} is not the id of a module", code="invalid-identifier")
        if key and not key.strip():
            raise RequestRefusedError(f"{module_id}: the key is blank", code="invalid-request")
    note(request, keys=sorted(body.api_keys))
    places = await asyncio.to_thread(_store, daemon, body.api_keys)
    text = "for sessions that start from now on"
    return KeysChanged(updated=sorted(body.api_keys), stored_in=places[-1] if places else None, message=text)


def _store(daemon: Daemon, keys: dict[str, str]) -> list[Literal["keyring", "file"]]:
    places = []
    for module_id, key in keys.items():
        if key:
            daemon.home.sessions.runtime.secrets.add(key)
            places.append(daemon.home.keys.set(module_id, key))
        else:
            daemon.home.keys.remove(module_id)
    return places


def _without_password(daemon: Daemon, store: StoreAddress) -> str:
    """Return an address as the settings file has it; the key store has its password."""
    if store.password is None or store.is_reference:
        return store.secret_text
    daemon.home.sessions.runtime.secrets.add(store.password)
    return store.with_reference(daemon.home.keys.keep(store.password)).secret_text


def _flat(body: BaseModel) -> dict[str, Any]:
    """Return what was given as plain values by key: `startup.auto_compile`."""
    flat: dict[str, Any] = {}
    for name in body.model_fields_set:
        value = getattr(body, name)
        if isinstance(value, BaseModel) and isinstance(Settings.model_fields[name].default, BaseModel):
            dumped = value.model_dump(mode="json")
            flat |= {f"{name}.{key}": dumped[key] for key in value.model_fields_set}
        elif isinstance(value, StoreAddress):
            flat[name] = value
        elif not isinstance(Settings.model_fields[name].default, BaseModel):
            flat[name] = body.model_dump(mode="json", include={name})[name]
    return flat
