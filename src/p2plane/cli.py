"""The command line: parse, call one function, print."""

from __future__ import annotations

import argparse
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `p2plane` with the given arguments, or those of the shell; the exit code."""
    from p2plane import __version__

    parser = argparse.ArgumentParser(
        prog="p2plane", description="Differentiable point-to-plane registration of 3D point clouds."
    )
    parser.add_argument("--version", action="version", version=f"p2plane {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="align a built-in pair of clouds and say what was done")
    demo.add_argument("--seed", type=int, default=0, help="of the pair (default 0)")
    options = parser.parse_args(arguments)
    if options.command == "demo":
        from p2plane.demo import run_demo

        print(run_demo(options.seed))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
