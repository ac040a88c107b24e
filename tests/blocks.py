"""Code blocks of Markdown pages, and a folder in which a page's blocks run one after the other.

- ``python`` runs. A statement that ends with the comment ``# -> text`` prints that text; ``...`` stands for anything.
- ``console`` runs what follows ``$ p2plane``. Other lines are what it prints, with the same dots.
- ``sh`` is checked: every ``p2plane`` command in it must be one, with options that it has.
- ``toml`` must be a config that can be trained.
- A block with a title is written to a file of that name first.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import io
import re
import shlex
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from p2plane.cli import main
from p2plane.cli.main import app
from p2plane.training.config import settings_from
from p2plane.training.files import read_config

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w+)(?P<options>[^\n]*)\n(?P<text>.*?)^(?P=indent)```", re.M | re.S
)
_EXPECTED = re.compile(r"#\s->\s(.*)$")
_DOTS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Block:
    """A block of code, and where it stands."""

    page: Path
    line: int
    language: str
    title: str | None
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks_of(page: Path, *languages: str) -> list[Block]:
    """The blocks of a page, in order, of some languages or of all."""
    text, blocks = page.read_text(), []
    for fence in _FENCE.finditer(text):
        title = re.search(r'title="([^"]+)"', fence["options"])
        line = text.count("\n", 0, fence.start("text")) + 1
        code = textwrap.dedent(fence["text"])
        blocks.append(Block(page, line, fence["language"], title[1] if title else None, code))
    return [block for block in blocks if not languages or block.language in languages]


def run(block: Block, names: dict[str, Any]) -> None:
    """Run or check a block in the current folder; Python's names are kept in the dictionary."""
    if block.title is not None:
        Path(block.title).write_text(block.text)
    runner = {"python": _run_python, "console": _run_console, "sh": _check_shell, "toml": _check_config}
    if block.language in runner:
        runner[block.language](block, names)


def commands_of(text: str) -> list[list[str]]:
    """The arguments of every `p2plane` in lines of a shell."""
    lines = text.replace("\\\n", " ").splitlines()
    words = [shlex.split(line.removeprefix("$ "), comments=True) for line in lines]
    return [line[1:] for line in words if line and Path(line[0]).name == "p2plane"]


def _run_python(block: Block, names: dict[str, Any]) -> None:
    """Statement by statement, so that each is held to what its comment promises."""
    names.setdefault("__name__", "__main__")
    lines = block.text.splitlines()
    for statement in ast.parse(block.text).body:
        ast.increment_lineno(statement, block.line - 1)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(ast.Module([statement], []), str(block.page), "exec", dont_inherit=True), names)
        last = lines[(statement.end_lineno or 0) - block.line]
        promised = _EXPECTED.search(last)
        if promised:
            _require(block, last.strip(), promised[1], said.getvalue())


def _run_console(block: Block, names: dict[str, Any]) -> None:
    for command in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
        line, _, expected = command.partition("\n")
        words = shlex.split(line, comments=True)
        assert words[0] == "p2plane", f"{block}: only p2plane runs here, got {line!r}"
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = main(words[1:])
        assert code in (0, 3), f"{block}: {line} ended with {code}\n{said.getvalue()}"
        if expected.strip():
            _require(block, line, expected, said.getvalue())


def _check_shell(block: Block, names: dict[str, Any]) -> None:
    for arguments in commands_of(block.text):
        require_command(arguments)


def require_command(arguments: list[str]) -> None:
    """Refuse arguments that `p2plane` would refuse; nothing is run."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("p2plane", list(arguments))
    while hasattr(command, "resolve_command") and context._protected_args + context.args:
        name, command, rest = command.resolve_command(context, context._protected_args + context.args)
        context = command.make_context(name, rest, parent=context)


def _check_config(block: Block, names: dict[str, Any]) -> None:
    path = Path(block.title or "block.toml")
    path.write_text(block.text)
    settings_from(read_config(path))


def _require(block: Block, what: str, expected: str, got: str) -> None:
    same = doctest.OutputChecker().check_output(expected.strip() + "\n", got.strip() + "\n", _DOTS)
    assert same, f"{block}: {what}\nexpected: {expected}\ngot: {got}"
