"""Config files: TOML that may extend other TOML, changes from the command line, and TOML written back."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from p2plane.training.settings import inside, unknown

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found]


def packaged_configs() -> dict[str, Path]:
    """The configs that come with the package, by name."""
    folder = Path(str(resources.files("p2plane.experiments"))) / "configs"
    return {path.stem: path for path in sorted(folder.rglob("*.toml")) if not path.stem.startswith("_")}


def find_config(name: str | os.PathLike) -> Path:
    """The file of a config: a path, or the name of a packaged one."""
    path = Path(name)
    if path.is_file():
        return path
    packaged = packaged_configs()
    if path.parent == Path() and path.name.removesuffix(".toml") in packaged:
        return packaged[path.name.removesuffix(".toml")]
    if path.suffix == ".toml" and len(path.parts) > 1:
        raise FileNotFoundError(f"there is no config file {path}")
    raise unknown(f"config {str(name)!r}", path.name.removesuffix(".toml"), packaged)


def read_config(path: str | os.PathLike) -> dict[str, Any]:
    """What a file says, on top of what the file says that it extends."""
    return _read(Path(path), ())


def with_changes(values: Mapping[str, Any], changes: Iterable[str]) -> dict[str, Any]:
    """Values with changes such as "optimizer.lr=1e-3" or "data.0.points=512"; a value is TOML, or else a string."""
    changed = json.loads(json.dumps(values))
    for change in changes:
        key, sign, text = change.partition("=")
        if not sign or not key.strip():
            raise ValueError(f"a change must read key=value, got {change!r}")
        _put(changed, key.strip().split("."), _parsed(text.strip()), key.strip())
    return changed


def to_toml(values: Mapping[str, Any]) -> str:
    """TOML text of nested mappings, lists, strings, numbers and booleans."""
    return "\n".join(_lines(values, ())).strip() + "\n"


def merged(below: Any, above: Any) -> Any:
    """Tables merge key by key; anything else above replaces what is below."""
    if isinstance(below, Mapping) and isinstance(above, Mapping):
        return {**below, **{key: merged(below.get(key), value) for key, value in above.items()}}
    return above


def differences(before: Any, now: Any, where: str = "") -> list[str]:
    """What changed from one table to another, by dotted names, in words."""
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        before, now = dict(enumerate(before)), dict(enumerate(now))
    if not isinstance(before, Mapping) or not isinstance(now, Mapping):
        return [] if before == now else [f"{where} was {before!r} and is {now!r}"]
    names = list(dict.fromkeys([*before, *now]))
    found = [differences(before.get(name), now.get(name), inside(where, str(name))) for name in names]
    return [line for lines in found for line in lines]


def _read(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    path = path.resolve()
    if path in above:
        raise ValueError(f"{path} must not extend itself, by way of {', '.join(each.name for each in above)}")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} must be TOML, but {error}") from error
    base = values.pop("extends", None)
    for each in [base] if isinstance(base, str) else reversed(base or []):
        beside = path.parent / each
        values = merged(_read(beside if beside.is_file() else find_config(each), (*above, path)), values)
    return values


def _put(values: Any, keys: list[str], value: Any, whole: str) -> None:
    first, *rest = keys
    if isinstance(values, list):
        if not first.isdigit() or int(first) >= len(values):
            raise ValueError(f"{whole} must have a number below {len(values)} in place of {first!r}")
        place: Any = int(first)
    elif isinstance(values, dict):
        place = first
    else:
        raise ValueError(f"{whole} must name a setting in a table, but there is {values!r} above {first!r}")
    if not rest:
        values[place] = value
        return
    if isinstance(values, dict):
        values.setdefault(place, {})
    _put(values[place], rest, value, whole)


def _parsed(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _lines(values: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    tables = {key: value for key, value in values.items() if isinstance(value, Mapping)}
    arrays = {key: value for key, value in values.items() if _is_array_of_tables(value)}
    lines = [f"{_key(key)} = {_text(value)}" for key, value in values.items() if key not in tables | arrays]
    for key, value in tables.items():
        name = (*path, _key(key))
        lines += ["", f"[{'.'.join(name)}]", *_lines(value, name)]
    for key, value in arrays.items():
        name = (*path, _key(key))
        for each in value:
            lines += ["", f"[[{'.'.join(name)}]]", *_lines(each, name)]
    return lines


def _is_array_of_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, Mapping) for each in value)


def _key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else json.dumps(key)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_text(each) for each in value)}]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False)
