"""The command line: parse, call one function, print. Heavy imports wait inside the command that needs them."""

from p2plane.cli.main import main

__all__ = ["main"]
