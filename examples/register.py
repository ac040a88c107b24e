"""Two scans in, one pose out, and how far it can be trusted.

python examples/register.py                      the two scans that come with p2plane
python examples/register.py a.ply b.ply          yours
"""

from __future__ import annotations

import sys

from p2plane import load_cloud, register, save_cloud
from p2plane.demo.scans import demo_scans
from p2plane.report import write_page


def main() -> None:
    source, target = sys.argv[1:3] if len(sys.argv) > 2 else demo_scans()[:2]
    result = register(source, target)
    print(result.T_target_source)
    print(f"confident: {result.confident} ({result.confidence:.0%})")
    print(f"{result.fitness:.0%} of the source lie within {result.inlier_distance:.3g} of the target")
    print("open directions:", "; ".join(result.undetermined) or "none")
    for warning in result.warnings:
        print("!", warning)
    save_cloud("moved.ply", load_cloud(source).moved(result.T_target_source))
    write_page("page.html", result, title="Two scans")
    print("written: moved.ply, page.html")


if __name__ == "__main__":
    main()
