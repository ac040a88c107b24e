"""Frozen dataclasses filled from what a file or the command line says: unknown names and wrong types raise."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

Kind = TypeVar("Kind")
NONE = "none"
"""What stands for None in a file, as TOML has no word for it."""


def fill(kind: type[Kind], values: Mapping[str, Any], where: str = "") -> Kind:
    """Settings of a dataclass from a mapping, nested ones too.

    Args:
        kind: a dataclass.
        values: by the names of its fields.
        where: the name of the whole in messages, such as "optimizer".
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"{where or kind.__name__} must be a table of settings, got {values!r}")
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    for name in values:
        if name not in names:
            raise unknown(inside(where, name), name, names)
    checked = {name: checked_value(hints[name], value, inside(where, name)) for name, value in values.items()}
    try:
        return kind(**checked)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}" if where else str(error)) from error


def checked_value(hint: Any, value: Any, where: str) -> Any:
    """A value of the type that a field wants; integers pass for numbers, lists for tuples."""
    if get_origin(hint) in (Union, UnionType):
        return _one_of_several(get_args(hint), value, where)
    if is_dataclass(hint):
        return value if isinstance(value, hint) else fill(hint, value, where)  # type: ignore[arg-type]
    if get_origin(hint) is tuple:
        return _tuple(get_args(hint), value, where)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint in (int, float, str, bool) and (
        not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool)
    ):
        raise ValueError(f"{where} must be {_NAMES[hint]}, got {value!r}")
    return value


def unknown(where: str, name: str, known: Iterable[str]) -> ValueError:
    """The error for a name that is not known; it says which ones are, and which one may have been meant."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1)
    meant = f" (did you mean {near[0]!r}?)" if near else ""
    return ValueError(f"{where} is unknown{meant}: there is {', '.join(known) or 'nothing'}")


def inside(where: str, name: str) -> str:
    """The dotted name of something inside something."""
    return f"{where}.{name}" if where else name


def plain(settings: Any) -> dict[str, Any]:
    """A dataclass as nested dictionaries, lists, and "none" for None: what TOML can hold."""
    return {name: _plain(value) for name, value in asdict(settings).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return NONE if value is None else value


_NAMES = {int: "an integer", float: "a number", str: "a string", bool: "true or false"}


def _one_of_several(hints: tuple[Any, ...], value: Any, where: str) -> Any:
    if NoneType in hints and (value is None or value == NONE):
        return None
    errors = []
    for hint in hints:
        if hint is NoneType:
            continue
        try:
            return checked_value(hint, value, where)
        except ValueError as error:
            errors.append(error)
    raise errors[-1]


def _tuple(hints: tuple[Any, ...], value: Any, where: str) -> tuple:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{where} must be a list, got {value!r}")
    if len(hints) == 2 and hints[1] is Ellipsis:
        hints = (hints[0],) * len(value)
    if len(hints) != len(value):
        raise ValueError(f"{where} must have {len(hints)} entries, got {len(value)}")
    return tuple(
        checked_value(hint, each, f"{where}.{i}") for i, (hint, each) in enumerate(zip(hints, value, strict=True))
    )
