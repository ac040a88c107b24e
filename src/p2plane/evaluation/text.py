"""The numbers of an evaluation as text for a terminal."""

from __future__ import annotations

from p2plane.evaluation.results import FAILED_ABOVE_DEG, RECALLED_BELOW, Results


def described(results: Results) -> str:
    """The paper's eight columns, and the rest."""
    s, settings = results.summary, results.record["settings"]
    where = f"{settings['data']['name']}, {len(results)} pairs of {settings['data']['available']}"
    lines = [
        f"{settings['method']} on {where}, seed {settings['seed']}",
        "",
        f"{'':22s} {'MSE':>12s} {'RMSE':>12s} {'MAE':>12s} {'R2':>12s}",
        _row("rotation (Euler, deg)", [s[f"rotation_{name}"] for name in ("mse_deg2", "rmse_deg", "mae_deg", "r2")]),
        _row("translation", [s[f"translation_{name}"] for name in ("mse", "rmse", "mae", "r2")]),
        "",
        f"{'':22s} {'mean':>12s} {'median':>12s} {'RMS':>12s}",
        _row("angle (deg)", [s["angle_mean_deg"], s["angle_median_deg"], s["angle_rms_deg"]]),
        _row("length", [s["length_mean"], s["length_median"], s["length_rms"]]),
        _row("seconds a pair", [s["seconds_mean"], s["seconds_median"]]),
        "",
        f"modified Chamfer distance {s['chamfer_mean']:.6f}, mean displacement {s['displacement_mean']:.4f}",
        f"recall (displacement below {RECALLED_BELOW:g}) {s['recall']:.2%}, "
        f"over {FAILED_ABOVE_DEG:g} degrees {s['over_5_deg']:.2%}, converged {s['converged']:.2%}",
        f"rows are in {results.path}",
    ]
    return "\n".join(lines)


def _row(name: str, values: list[float]) -> str:
    return f"{name:22s} " + " ".join(f"{value:12.6f}" for value in values)
