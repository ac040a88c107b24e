"""The memory of a step is what its tensors take beyond those before it."""

import torch

from p2plane.experiments.memory import peak_of_tensors

MEGABYTE = 2**20


def a_megabyte() -> torch.Tensor:
    return torch.empty(MEGABYTE, dtype=torch.uint8)


def test_tensors_that_live_at_once_count_together_and_others_do_not() -> None:
    kept = [a_megabyte() for _ in range(5)]

    def at_once() -> None:
        _first, _second = a_megabyte(), a_megabyte()

    def in_turn() -> None:
        for _ in range(3):
            a_megabyte()

    assert peak_of_tensors(at_once) == 2 * MEGABYTE
    assert peak_of_tensors(in_turn) == MEGABYTE
    assert len(kept) == 5


def test_a_step_without_tensors_takes_nothing() -> None:
    assert peak_of_tensors(lambda: None) == 0
