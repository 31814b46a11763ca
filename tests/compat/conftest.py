"""Prints the differences from the reference kernel, each with the decision that explains it."""

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    differences = [found for report in reports if report.when == "call" for found in report.user_properties]
    if differences:
        terminalreporter.section(f"{len(differences)} differences from the reference kernel, and why")
        for test, decision in differences:
            terminalreporter.write_line(f"{test}\n    {decision}")
