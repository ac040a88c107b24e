"""The built-in data set: every object is what it says, and the same whenever and wherever it is made."""

from __future__ import annotations

import pytest
import torch

from p2plane.data.shape import Shape
from p2plane.data.shapes.categories import CATEGORIES
from p2plane.data.synthetic import SyntheticShapes


def information(shape: Shape) -> torch.Tensor:
    """(6, 6) mean point-to-plane information about the pose."""
    points, normals = shape.points.double(), shape.normals.double()
    jacobian = torch.cat([torch.linalg.cross(points, normals), normals], dim=-1)
    return jacobian.mT @ jacobian / len(jacobian)


@pytest.mark.parametrize("name", sorted(CATEGORIES))
@pytest.mark.parametrize("split", ["train", "test"])
def test_every_category_gives_centred_shapes_in_the_unit_sphere(name, split):
    for shape in SyntheticShapes(split, shapes_per_category=4, points=700, categories=[name]):
        assert shape.name == name
        assert shape.points.shape == shape.normals.shape == (700, 3)
        assert shape.points.dtype == shape.normals.dtype == torch.float32
        assert shape.points.isfinite().all()
        assert shape.points.mean(dim=0).abs().max() < 1e-6
        assert shape.points.norm(dim=1).max() == pytest.approx(1, abs=1e-6)
        assert (shape.normals.norm(dim=1) - 1).abs().max() < 1e-6
        assert len(shape.points.unique(dim=0)) == 700


def test_the_pose_is_determined_for_nearly_all_categories():
    dataset = SyntheticShapes("test", shapes_per_category=6, points=1024)
    smallest = torch.stack([torch.linalg.eigvalsh(information(shape))[0] for shape in dataset])
    determined = (smallest.reshape(-1, 6) > 1e-3).all(dim=1)
    assert determined.float().mean() >= 0.8
    undetermined = {dataset.categories[i] for i in (~determined).nonzero()[:, 0].tolist()}
    assert undetermined <= {"bottle", "bowl", "vase"}  # some of these turn into themselves


def test_an_object_is_the_same_in_every_interpreter():
    chair = SyntheticShapes("train", points=8, categories=["chair"], seed=3)[1]
    plant = SyntheticShapes("test", points=8, categories=["plant"])[24]
    points = torch.tensor([[-0.52042, 0.53904, -0.44081], [-0.19363, -0.55234, -0.05517]])
    normals = torch.tensor([[0.07253, 0.04040, 0.99655], [0.03549, -0.95681, -0.28855]])
    torch.testing.assert_close(chair.points[:2], points, atol=1e-4, rtol=0)
    torch.testing.assert_close(plant.normals[:2], normals, atol=1e-4, rtol=0)


def test_an_object_depends_on_nothing_but_its_own_keys():
    dataset = SyntheticShapes("train", shapes_per_category=3, points=64)
    wanted = dataset[3 * dataset.names.index("lamp") + 2]
    for _ in zip(range(5), dataset, strict=False):  # others made in between
        pass
    alone = SyntheticShapes("train", shapes_per_category=7, points=64, categories=["vase", "lamp"])
    for shape in (dataset[3 * wanted.label + 2], dataset[3 * wanted.label + 2 - len(dataset)], alone[2]):
        assert torch.equal(shape.points, wanted.points)
        assert torch.equal(shape.normals, wanted.normals)
        assert (shape.label, shape.name) == (wanted.label, "lamp")


def test_splits_seeds_and_numbers_give_different_objects():
    def chair(split="train", seed=0, number=0):
        return SyntheticShapes(split, categories=["chair"], points=2048, seed=seed)[number]

    # The points differ between two draws from one object too; the information about the pose hardly does.
    first = information(chair())
    for other in (chair(split="test"), chair(seed=1), chair(number=1)):
        assert (information(other) - first).abs().max() > 0.02


def test_labels_are_known_without_making_a_shape():
    dataset = SyntheticShapes("test", shapes_per_category=2, points=16)
    assert dataset.names == sorted(CATEGORIES)
    assert len(dataset) == len(dataset.labels) == 2 * len(CATEGORIES)
    assert dataset.labels.dtype == torch.int64
    for i in (0, 1, 17, len(dataset) - 1):
        assert dataset[i].label == dataset.labels[i]
        assert dataset.names[dataset[i].label] == dataset[i].name


def test_categories_restrict_and_leave_the_labels_alone():
    names = SyntheticShapes().names
    seen = SyntheticShapes("train", shapes_per_category=2, categories=names[:20])
    unseen = SyntheticShapes("test", shapes_per_category=2, categories=names[20:])
    assert seen.names == unseen.names == names
    assert seen.labels.tolist() == [label for label in range(20) for _ in range(2)]
    assert set(seen.labels.tolist()).isdisjoint(unseen.labels.tolist())
    assert unseen[0].name == names[20]


@pytest.mark.parametrize("index", [4, -5, 100])
def test_an_index_out_of_range_is_refused(index):
    with pytest.raises(IndexError, match=rf"index must be between -4 and 3, got {index}"):
        SyntheticShapes("test", shapes_per_category=2, categories=["bed", "cup"])[index]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "valid"}, r"split must be one of \('train', 'test'\), got 'valid'"),
        ({"categories": ["chair", "dragon"]}, r"categories must be some of \['airplane'.*got \['chair', 'dragon'\]"),
        ({"categories": "chair"}, "categories must be some of .*got 'chair'"),
        ({"categories": []}, r"categories must be some of .*got \[\]"),
        ({"points": 0}, "points must be at least 1, got 0"),
        ({"shapes_per_category": 0}, "shapes_per_category must be at least 1, got 0"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        SyntheticShapes(**arguments)


def test_a_shape_checks_that_its_rows_belong_together():
    with pytest.raises(ValueError, match=r"normals must have the shape \(5, 3\) of the points, got \(4, 3\)"):
        Shape(torch.zeros(5, 3), torch.zeros(4, 3), 0, "bed")
    with pytest.raises(ValueError, match=r"points must have shape \(N, 3\), got \(3,\)"):
        Shape(torch.zeros(3), torch.zeros(3), 0, "bed")
