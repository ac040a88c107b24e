"""The one door of all networks: what it checks, what it completes."""

from __future__ import annotations

import pytest
import torch

from p2plane.networks.door import Clouds, RegistrationNetwork
from p2plane.solve.distances import point_to_point


class Listener(RegistrationNetwork):
    """Remembers what came through the door."""

    fewest_points = 3

    def __init__(self, needs=(False, False)):
        super().__init__()
        self.needs, self.heard = needs, None

    def needs_normals(self):
        return self.needs

    def register(self, clouds: Clouds, generator):
        self.heard = clouds
        return point_to_point(clouds.source, clouds.source)


def sphere(*shape: int) -> torch.Tensor:
    points = torch.randn(*shape, 3, generator=torch.Generator().manual_seed(0))
    return torch.nn.functional.normalize(points, dim=-1)


def test_missing_normals_are_estimated_where_they_are_needed_and_the_result_says_so():
    cloud = sphere(2, 500)
    network = Listener((False, True))
    assert network(cloud, cloud).normals_estimated
    assert network.heard.source_normals is None
    assert (network.heard.target_normals * cloud).sum(-1).abs().median() > 0.97
    assert not network(cloud, cloud, target_normals=cloud).normals_estimated
    assert not Listener()(cloud, cloud).normals_estimated


def test_clouds_get_the_precision_of_the_network():
    network = Listener()
    network.scale = torch.nn.Parameter(torch.ones(()))
    network(sphere(1, 10).double(), sphere(1, 10).double(), sphere(1, 10).double())
    assert network.heard.source.dtype == network.heard.source_normals.dtype == torch.float32
    network.double()(sphere(1, 10), sphere(1, 10))
    assert network.heard.target.dtype == torch.float64


def test_what_stands_in_absent_rows_does_not_matter():
    cloud = sphere(1, 10)
    padded = torch.cat([cloud, torch.full((1, 5, 3), torch.nan)], dim=1)
    mask = torch.arange(15)[None] < 10
    network = Listener()
    network(padded, cloud, padded, source_mask=mask)
    assert (network.heard.source[:, 10:] == 0).all()
    assert (network.heard.source_normals[:, 10:] == 0).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"source": torch.zeros(10, 3)},
            r"source must be .* of shape \(B, N, 3\), got .* \(10, 3\)",
        ),
        ({"target": torch.zeros(2, 10, 3, dtype=torch.int64)}, "target must be floating point"),
        ({"target": torch.zeros(3, 10, 3)}, "target must have the batch size of source, 2, got 3"),
        ({"source_normals": torch.zeros(2, 9, 3)}, r"source_normals must have the shape \(2, 10, 3\)"),
        ({"target_mask": torch.ones(2, 10)}, r"target_mask must be bool of shape \(2, 10\), got torch.float32"),
        (
            {"source_mask": torch.zeros(2, 10, dtype=torch.bool)},
            "source must have at least 3 points",
        ),
        ({"target": torch.zeros(2, 2, 3)}, "target must have at least 3 points in every cloud, got 2"),
        ({"source": torch.full((2, 10, 3), torch.nan)}, "source must be finite where a point is present"),
    ],
)
def test_bad_input_is_named(change, message):
    arguments = {"source": torch.ones(2, 10, 3), "target": torch.ones(2, 10, 3)} | change
    with pytest.raises(ValueError, match=message):
        Listener()(**arguments)


def test_a_mask_that_hides_nothing_is_none():
    cloud, network = sphere(2, 10), Listener()
    some = torch.arange(10).expand(2, 10) < 9
    network(cloud, cloud, source_mask=torch.ones(2, 10, dtype=torch.bool), target_mask=some)
    assert network.heard.source_mask is None
    assert network.heard.target_mask is some
