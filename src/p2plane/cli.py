"""The command line: parse, call one function, print."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any


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
    demo.set_defaults(run=_demo)
    _add_data(commands)
    options = parser.parse_args(arguments)
    try:
        print(options.run(options))
    except (ValueError, OSError, RuntimeError) as error:
        print(f"p2plane: {error}", file=sys.stderr)
        return 1
    return 0


def _add_data(commands: Any) -> None:
    data = commands.add_parser("data", help="list the data sets, check one, or download one")
    data.set_defaults(run=_list_data)
    data.add_argument("--root", help="folder of data sets (default: P2PLANE_DATA, then the cache)")
    actions = data.add_subparsers(dest="action")
    check = actions.add_parser("check", help="read every shape of a data set and say what it holds")
    check.set_defaults(run=_check_data)
    download = actions.add_parser("download", help="fetch a data set; goes on where it was cut")
    download.set_defaults(run=_download_data)
    for action in (check, download):
        action.add_argument("name", help="such as modelnet40")
        action.add_argument("--root", help="folder of data sets", default=argparse.SUPPRESS)


def _demo(options: argparse.Namespace) -> str:
    from p2plane.demo import run_demo

    return run_demo(options.seed)


def _list_data(options: argparse.Namespace) -> str:
    from p2plane.data import catalog

    return catalog.listing(options.root)


def _check_data(options: argparse.Namespace) -> str:
    from p2plane.data import catalog

    return catalog.check(options.name, options.root)


def _download_data(options: argparse.Namespace) -> str:
    from p2plane.data import catalog

    return f"{options.name} is in {catalog.fetch(options.name, options.root)}"


if __name__ == "__main__":
    raise SystemExit(main())
