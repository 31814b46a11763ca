"""What becomes of the value that mount returns."""

from typing import Any

import pytest


@pytest.mark.parametrize("kind", ["orchestrator", "context", "provider", "tool"])
@pytest.mark.parametrize("way", ["resolver", "installed"])
async def test_an_instance_that_is_only_returned_is_mounted_once(modules: Any, kind: str, way: str) -> None:
    written = modules.write(kind, mount="thing.config = config\nreturn thing")
    if way == "installed":
        modules.install(written)
        del modules.resolver.folders[written.module_id]
    plan = modules.plan()
    config = {"a": 1}
    if kind in plan["session"]:
        plan["session"][kind] = written.entry(config=config)
    else:
        plan[f"{kind}s"] = [written.entry(config=config)]
    session = modules.session(plan)

    assert await modules.failures_of(session) == []

    point = kind if kind in plan["session"] else f"{kind}s"
    mounted = session.coordinator.get(point)
    if isinstance(mounted, dict):
        assert list(mounted) == [written.name]
        mounted = mounted[written.name]
    assert mounted.config is config
    assert written.times_mounted == 1


async def test_a_returned_provider_can_be_a_named_instance(modules: Any) -> None:
    provider = modules.write("provider", mount="return thing")
    session = modules.session(modules.plan(providers=[provider.entry(), provider.entry(instance_id="b")]))

    assert await modules.failures_of(session) == []

    assert list(session.coordinator.get("providers")) == [provider.name, "b"]


@pytest.mark.parametrize("kind", ["orchestrator", "context", "provider", "tool"])
async def test_an_instance_that_the_module_mounted_itself_is_neither_mounted_again_nor_called_at_the_end(
    modules: Any, kind: str
) -> None:
    head = "calls = []"
    point = {"provider": "providers", "tool": "tools"}.get(kind, kind)
    mount = f"""
        type(thing).__call__ = lambda self: calls.append("called")
        await coordinator.mount("{point}", thing, name="own-name")
        return thing
    """
    written = modules.write(kind, head=head, mount=mount)
    plan = modules.plan()
    if kind in plan["session"]:
        plan["session"][kind] = written.module_id
    else:
        plan[point] = [written.entry()]
    session = modules.session(plan)

    assert await modules.failures_of(session) == []
    mounted = session.coordinator.get(point)
    assert mounted is not None
    assert list(mounted) == ["own-name"] if isinstance(mounted, dict) else True
    await session.cleanup()

    assert written.code.calls == []


@pytest.mark.parametrize("kind", ["orchestrator", "context", "provider", "tool", "hook"])
@pytest.mark.parametrize("form", ["lambda: calls.append(1)", "cleanup", "Closer()", "functools.partial(cleanup)"])
async def test_a_returned_callable_is_the_cleanup(modules: Any, kind: str, form: str) -> None:
    head = """
        import functools

        calls = []

        async def cleanup():
            calls.append(1)

        class Closer:
            async def __call__(self):
                calls.append(1)
    """
    point = {"provider": "providers", "tool": "tools"}.get(kind, kind)
    own = (
        'coordinator.hooks.register("tool:pre", thing)'
        if kind == "hook"
        else f'await coordinator.mount("{point}", thing, name=NAME)'
    )
    written = modules.write(kind, head=head, mount=f"{own}\nreturn {form}")
    plan = modules.plan()
    if kind in plan["session"]:
        plan["session"][kind] = written.module_id
    else:
        plan[f"{kind}s"] = [written.entry()]
    session = modules.session(plan)

    assert await modules.failures_of(session) == []
    assert written.code.calls == []
    await session.cleanup()

    assert written.code.calls == [1]


@pytest.mark.parametrize("value", ["None", "{'name': 'x'}", "'text'", "[1]", "7", "object()"])
async def test_anything_else_that_mount_returns_is_ignored(modules: Any, value: str) -> None:
    tool = modules.write("tool", mount=f'await coordinator.mount("tools", thing)\nreturn {value}')
    session = modules.session(modules.plan(tools=[tool.entry()]))

    assert await modules.failures_of(session) == []
    await session.cleanup()

    assert list(session.coordinator.get("tools")) == [tool.name]


async def test_a_tool_that_mounted_one_and_returned_another_keeps_the_one_it_mounted(modules: Any) -> None:
    mount = 'await coordinator.mount("tools", thing)\nother = Thing()\nother.name = "other"\nreturn other'
    tool = modules.write("tool", mount=mount)
    session = modules.session(modules.plan(tools=[tool.entry()]))

    assert await modules.failures_of(session) == []

    assert list(session.coordinator.get("tools")) == [tool.name]


async def test_what_a_hook_module_returns_is_never_mounted(modules: Any) -> None:
    definition = """
        class Thing:
            name = NAME
            description = "looks like a tool"

            async def execute(self, input):
                return None
    """
    hook = modules.write("hook", definition=definition, mount="return thing")
    session = modules.session(modules.plan(hooks=[hook.entry()]))

    assert await modules.failures_of(session) == []

    assert session.coordinator.get("tools") == {}


async def test_an_incomplete_instance_of_an_installed_module_is_not_mounted(modules: Any) -> None:
    provider = modules.write("provider", definition="class Thing:\n    name = NAME\n", mount="return thing")
    modules.install(provider)
    del modules.resolver.folders[provider.module_id]

    failures = await modules.failures_of(modules.session(modules.plan(providers=[provider.entry()])))

    assert [failure["error"] for failure in failures] == ["Provider mount did not install a new provider instance"]
