"""The authors' DCP-v1 weights on their own protocol: ``python benchmarks/published.py dcp_v1.t7 [--pairs 120]``.

Test shapes of ModelNet40 in the order of their list, the first 1024 points, pair i drawn from the seed i. On the first
120 pairs of the samples that we have, the published program gives MSE(R) 10.58, MAE(R) 1.794 degrees, MAE(t) 0.00061;
the DCP paper, on other samples of the same meshes, 6.48 and 1.51 over all.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch
from torch.utils.data import DataLoader, Subset

from p2plane.data.modelnet import ModelNet40
from p2plane.data.pair import collate
from p2plane.data.pairs import PairDataset
from p2plane.evaluation.metrics import euler_summary
from p2plane.networks.published import load_published


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the evaluation with the given arguments, or those of the shell; the exit code."""
    parser = argparse.ArgumentParser(description="Evaluate the published DCP-v1 weights.")
    parser.add_argument("weights", help="dcp_v1.t7")
    parser.add_argument("--pairs", type=int, help="the first so many; all where it is not given")
    parser.add_argument("--root", help="folder of data sets")
    options = parser.parse_args(arguments)
    pairs = PairDataset(ModelNet40("test", root=options.root), "dcp")
    count = len(pairs) if options.pairs is None else options.pairs
    model = load_published("dcp-v1", options.weights)
    estimates, truths = [], []
    with torch.no_grad():
        for batch in DataLoader(Subset(pairs, range(count)), batch_size=10, collate_fn=collate):
            estimates.append(model(batch.source, batch.target).T_target_source)
            truths.append(batch.T_target_source)
    summary = euler_summary(torch.cat(estimates), torch.cat(truths))
    print(f"DCP-v1 as published, DCP's protocol, {count} pairs")
    for name, value in summary.items():
        print(f"{name:22s} {value:.6g}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
