"""The module under the name that bundles of the ecosystem use."""

from amplifier_core import AmplifierSession


async def test_a_plan_may_name_it_as_other_bundles_do() -> None:
    plan = {
        "session": {"orchestrator": "loop-basic", "context": "context-simple"},
        "providers": [{"module": "provider-mock"}],
        "hooks": [{"module": "hook-redaction", "config": {"rules": ["secrets"], "priority": 10}}],
    }
    async with AmplifierSession(plan) as session:
        scrub = session.coordinator.get_capability("redaction.scrub")

        assert session.status.load_failures == []
        assert scrub("mail me@example.org, token ghp_" + "a1B2" * 9) == "mail me@example.org, token [REDACTED:SECRET]"
