"""The one test that every structural test class has."""

from pathlib import Path
from typing import ClassVar

import pytest

from amplifier_core.validation.base import ModuleValidator


class StructuralTests:
    """Runs a module's validator; a subclass names it."""

    validator: ClassVar[type[ModuleValidator]]

    @pytest.mark.asyncio
    async def test_structural_validation(self, module_path: Path | None) -> None:
        """The module can be imported and mounted, and what it mounts fulfils the contract of its type."""
        if module_path is None:
            pytest.skip("No module path detected")
        result = await self.validator().validate(module_path)
        if not result.passed:
            errors = "\n".join(f"  {error.name}: {error.message}" for error in result.errors)
            pytest.fail(f"Structural validation failed:\n{errors}", pytrace=False)
