"""The command line does what `make demo` promises."""

from __future__ import annotations

import re

import pytest

import p2plane
from p2plane.cli import main


def test_the_demo_recovers_the_motion_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--seed", "3"]) == 0
    report = capsys.readouterr().out
    degrees = float(re.search(r"point_to_plane +([\d.]+) degrees", report).group(1))
    assert degrees < 0.5
    assert "converged True" in report
    assert "6 of 6 directions determined" in report


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert p2plane.__version__ in capsys.readouterr().out


def test_what_is_wrong_is_one_line_and_the_exit_code_is_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "check", "nonsense"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "nonsense" in error
    assert main(["no-such-command"]) == 2
