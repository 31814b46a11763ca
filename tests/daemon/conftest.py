"""Daemons in this process fork their workers from one template."""

from collections.abc import Iterator

import pytest
from shared_template import SharedTemplate, end_shared_templates

from amplifierd.workers.worker_start import Template


@pytest.fixture(scope="session")
def ended_templates() -> Iterator[None]:
    yield
    end_shared_templates()


@pytest.fixture(scope="module", autouse=True)
def shared_template(ended_templates: None) -> Iterator[None]:
    """Let the daemons of a file share a template. A file whose daemons are to start their own overrides this."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Template, "start", SharedTemplate.start)
        yield
