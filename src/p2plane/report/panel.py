"""The numbers beside the picture, as HTML."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from html import escape
from typing import NamedTuple

import torch

from p2plane.geometry import so3
from p2plane.registration.result import Candidate, Registration

# A coordinate is called open when this much of an undetermined direction lies along it.
_OPEN = 0.1
_LIKELY = 0.5
_MOST_CANDIDATES = 12


class Verdict(NamedTuple):
    """Whether to trust a pose, in a word, a sentence and a colour of a traffic light."""

    light: str
    word: str
    sentence: str


def verdict(registration: Registration) -> Verdict:
    """Green, amber or red."""
    if registration.confident:
        return Verdict("green", "Confident", "The pose may be used as it is.")
    if registration.undetermined:
        return Verdict("amber", "Partly open", "The geometry leaves directions open. The rest may be right.")
    if registration.confidence >= _LIKELY:
        return Verdict("amber", "Look twice", "The pose is probably right. Look before you use it.")
    return Verdict("red", "Not confident", "The pose is probably wrong. Do not use it unseen.")


def panel(registration: Registration, *, unit: str = "", settings: Mapping[str, object] | None = None) -> str:
    """All sections, from what matters most to what matters least."""
    return "\n".join(
        [
            _confidence(registration),
            _warnings(registration.warnings),
            _undetermined(registration),
            _measures(registration, unit),
            _pose(registration),
            _deviations(registration, unit),
            _candidates(registration, unit),
            _table("Time", [(stage, f"{seconds:.2f} s") for stage, seconds in _with_total(registration.timings)]),
            _table("Settings", [(name, str(value)) for name, value in (settings or {}).items()]),
        ]
    )


def length(value: float, unit: str = "", digits: int = 3) -> str:
    """A length with its unit, if it has one."""
    return f"{value:.{digits}g}" + (f" {unit}" if unit else "")


def _confidence(registration: Registration) -> str:
    light, word, sentence = verdict(registration)
    percent = f"{registration.confidence:.0%}" if registration.confident or not registration.undetermined else ""
    return (
        f'<section class="verdict {light}"><p><strong>{word}</strong><span>{percent}</span></p>'
        f"<p>{sentence}</p></section>"
    )


def _warnings(warnings: tuple[str, ...]) -> str:
    return _section("Warnings", f'<ul class="warnings">{_items(warnings)}</ul>') if warnings else ""


def _undetermined(registration: Registration) -> str:
    words = registration.undetermined
    if not words:
        return ""
    note = "The geometry does not tell how far; the pose stays about where the search began."
    return _section("Open directions", f'<ul class="open">{_items(words)}</ul><p class="note">{note}</p>')


def _measures(registration: Registration, unit: str) -> str:
    middle = registration.source.points.double().mean(0) if len(registration.source) else registration.t.new_zeros(3)
    angle = math.degrees(float(so3.log(registration.R).norm()))
    shift = float((registration.R @ middle + registration.t - middle).norm())
    rows = [
        ("Turn", f"{angle:.2f}°", "Angle of the rotation"),
        ("Shift", length(shift, unit), "How far the middle of the source moves"),
        ("Fitness", f"{registration.fitness:.1%}", "Source points with a target point within reach"),
        ("Reach", length(registration.inlier_distance, unit), "How near partners must be"),
        ("Plane RMSE", length(registration.plane_rmse, unit), "Root mean square distance to the partners' planes"),
        ("Point RMSE", length(registration.inlier_rmse, unit), "Root mean square distance to the partners"),
        ("Normals agree", f"{registration.normal_agreement:.3f}", "Median |cos| between the normals of partners"),
        ("Pairs", f"{len(registration.matches.source):,}", "Points that the pose brings together"),
    ]
    cells = "".join(
        f'<div title="{escape(hint)}"><dt>{name}</dt><dd>{escape(value)}</dd></div>' for name, value, hint in rows
    )
    return f'<section><dl class="measures">{cells}</dl></section>'


def _pose(registration: Registration) -> str:
    rows = registration.T_target_source.tolist()
    exact = "\n".join(" ".join(repr(entry) for entry in row) for row in rows)
    cells = "".join(f"<tr>{_cells(_entry(entry) for entry in row)}</tr>" for row in rows)
    body = (
        f'<table class="matrix">{cells}</table>'
        f'<button type="button" id="copy" data-copy="{escape(exact)}">Copy</button>'
        '<p class="note">Maps source coordinates to target coordinates.</p>'
    )
    return _section("<code>T_target_source</code>", body, "pose")


def _deviations(registration: Registration, unit: str) -> str:
    turns, shifts = deviations(registration)
    rows = [
        ("turn", [f"{math.degrees(value):.2g}°" if value is not None else "open" for value in turns]),
        ("shift", [length(value, unit, 2) if value is not None else "open" for value in shifts]),
    ]
    body = "".join(f"<tr><th>{name}</th>{_cells(cells)}</tr>" for name, cells in rows)
    head = "<tr><th></th><th>x</th><th>y</th><th>z</th></tr>"
    note = "Of noise alone, at the middle of the overlap: read them as optimistic."
    if spread := registration.spread:
        off = f"{math.degrees(spread.angle):.2g}° and {length(spread.shift, unit, 2)}"
        note += f" Poses of halves of the points differ by {escape(off)} there."
    return _section("Standard deviations", f'<table class="grid">{head}{body}</table><p class="note">{note}</p>')


def deviations(registration: Registration) -> tuple[list[float | None], list[float | None]]:
    """Standard deviations of turns about x, y, z and of shifts of the middle; None along open directions.

    The covariance is about the target's origin. A point at the middle moves by ``v - center x omega``.
    """
    to_middle = torch.eye(6, dtype=torch.float64)
    to_middle[3:, :3] = -so3.hat(registration.center.double())
    covariance = to_middle @ registration.covariance.double() @ to_middle.mT
    sigmas = covariance.diagonal().clamp_min(0).sqrt().tolist()
    openness = registration.directions.double().norm(dim=0).tolist()
    known = [None if share > _OPEN else sigma for sigma, share in zip(sigmas, openness, strict=True)]
    return known[:3], known[3:]


def _candidates(registration: Registration, unit: str) -> str:
    if not registration.candidates:
        return ""
    best = registration.candidates[0].T_target_source
    head = "<tr><th>from</th><th>score</th><th>fitness</th><th>plane RMSE</th><th>angle</th></tr>"
    rows = "".join(_candidate(candidate, best, unit) for candidate in registration.candidates[:_MOST_CANDIDATES])
    count = len(registration.candidates)
    note = f'<p class="note">The best {min(count, _MOST_CANDIDATES)} of {count}; the angle is to the best.</p>'
    return _details("Candidates", f'<table class="grid">{head}{rows}</table>{note if count > 1 else ""}')


def _candidate(candidate: Candidate, best: torch.Tensor, unit: str) -> str:
    angle = math.degrees(float(so3.log(best[:3, :3].mT @ candidate.T_target_source[:3, :3]).norm()))
    cells = [
        ", ".join(candidate.origins),
        f"{candidate.score:.3g}",
        f"{candidate.fitness:.0%}",
        length(candidate.plane_rmse, unit),
        f"{angle:.1f}°",
    ]
    return f"<tr>{_cells(cells)}</tr>"


def _cells(texts: Iterable[str]) -> str:
    return "".join(f"<td>{escape(text)}</td>" for text in texts)


def _with_total(timings: Mapping[str, float]) -> list[tuple[str, float]]:
    rows = list(timings.items())
    return [*rows, ("in all", sum(timings.values()))] if len(rows) > 1 and "total" not in timings else rows


def _table(title: str, rows: list[tuple[str, str]]) -> str:
    if not rows:
        return ""
    body = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    return _details(title, f'<table class="list">{body}</table>')


def _entry(value: float) -> str:
    text = f"{value:.5f}" if abs(value) < 1000 else f"{value:.6g}"
    return text.replace("-", "\N{MINUS SIGN}")


def _items(words: Iterable[str]) -> str:
    return "".join(f"<li>{escape(word)}</li>" for word in words)


def _section(title: str, body: str, kind: str = "") -> str:
    return f'<section class="{kind}"><h2>{title}</h2>{body}</section>'


def _details(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>{body}</details>"
