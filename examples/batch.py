"""Many pairs: a list of files in, a row for each pair out; start it again and it goes on where it was cut off.

python examples/batch.py [method]
"""

from __future__ import annotations

import sys
from pathlib import Path

from p2plane import Cloud, save_cloud
from p2plane.batch import register_many
from p2plane.data.pairs import PairDataset, PairSettings
from p2plane.data.synthetic import SyntheticShapes


def main() -> None:
    folder = Path("scans")
    folder.mkdir(exist_ok=True)
    pairs = PairDataset(SyntheticShapes("test"), PairSettings(shapes=3, points=512, keep=400, max_angle_deg=15))
    lines = ["source,target"]
    for index in range(4):
        pair = pairs[40 * index]
        save_cloud(folder / f"{index}-source.ply", Cloud(pair.source, pair.source_normals))
        save_cloud(folder / f"{index}-target.ply", Cloud(pair.target, pair.target_normals))
        lines.append(f"{index}-source.ply,{index}-target.ply")
    (folder / "pairs.csv").write_text("\n".join(lines))
    method = sys.argv[1] if len(sys.argv) > 1 else "auto"
    results = register_many(folder / "pairs.csv", "poses.csv", method=method, processes=2)
    print(f"{len(results)} pairs, {results.confident} confident, {results.failed} failed: {results.path}")
    for each in results:
        print(each.source, "confident" if each.confident else each.error or each.warnings, each.measures["fitness"])


if __name__ == "__main__":
    main()
