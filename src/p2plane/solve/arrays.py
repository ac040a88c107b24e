"""Small matrices as tensors, or as NumPy arrays that share their memory.

A search makes a hundred operations on a few hundred numbers, and on the CPU each of them takes torch longer than NumPy.
So functions of small matrices are written in what both have in common, and `small` chooses: arrays where nobody follows
the operations, tensors for gradients, compilers, vmap and other devices.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

from p2plane.solve.basic import factored, is_basic, project, solved
from p2plane.solve.inputs import holds


def is_followed() -> bool:
    """Whether somebody follows the operations, of whatever tensors: a compiler, vmap and its like, or forward mode."""
    is_transformed = torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
    return is_transformed or torch.compiler.is_compiling()


def may_write_in_place() -> bool:
    """Whether nobody follows the operations, a gradient neither."""
    return not torch.is_grad_enabled() and not is_followed()


class Constant(NamedTuple):
    """The same numbers as a tensor of the CPU and as an array."""

    tensor: Tensor
    array: np.ndarray

    @staticmethod
    def of(tensor: Tensor) -> Constant:
        """A constant that shares the tensor's memory."""
        return Constant(tensor, tensor.numpy())


def small(*tensors: Tensor) -> tuple[Any, ...]:
    """The tensors as NumPy arrays that share their memory; as they are where somebody follows or reads other memory."""
    wants_gradient = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    if wants_gradient or is_followed() or is_basic() or not all(map(_is_plain, tensors)):
        return tensors
    return tuple(_array_of(tensor) for tensor in tensors)


def alike(array: Any, tensor: Tensor) -> Any:
    """The tensor as an array of the same kind as another."""
    return tensor if isinstance(array, Tensor) else _array_of(tensor)


def tensor_of(array: Any) -> Tensor:
    """The tensor that shares an array's memory; a tensor as it is."""
    return array if isinstance(array, Tensor) else torch.from_numpy(array)


def fixed(array: Any) -> Any:
    """The array without its gradient."""
    return array.detach() if isinstance(array, Tensor) and array.requires_grad else array


def rounded(array: Any, dtype: torch.dtype) -> Any:
    """The array in float32 or float64."""
    if isinstance(array, Tensor):
        return array.to(dtype)
    return array.astype(np.float32 if dtype == torch.float32 else np.float64, copy=False)


def namespace(array: Any) -> Any:
    """The module with the functions for such an array: torch or numpy, whose names are the same for what we need."""
    return torch if isinstance(array, Tensor) else np


def beside(array: Any, constant: Constant) -> Any:
    """A constant as an array of the same kind, and on the same device; unlike `Tensor.to`, at no cost on the CPU."""
    if not isinstance(array, Tensor):
        return constant.array
    return constant.tensor if constant.tensor.device == array.device else constant.tensor.to(array.device)


def _is_plain(tensor: Tensor) -> bool:
    return type(tensor) is Tensor and tensor.is_cpu and tensor.dtype != torch.bfloat16  # which NumPy does not know


def _array_of(tensor: Tensor) -> np.ndarray:
    return fixed(tensor).numpy()


def silent(array: Any) -> AbstractContextManager:
    """A context in which numbers that are not finite come without NumPy's warnings, as they do from tensors."""
    return nullcontext() if isinstance(array, Tensor) else np.errstate(all="ignore")


def inverted(matrix: Any) -> Any:
    """(B, F, F) inverses. A singular matrix gives a tensor of anything, and of NumPy a LinAlgError."""
    return torch.linalg.inv_ex(matrix).inverse if isinstance(matrix, Tensor) else np.linalg.inv(matrix)


def divided(matrix: Any, right: Any) -> Any:
    """(B, F, K) ``matrix^-1 right``; of singular matrices as `inverted`, and in basic operations of definite ones."""
    if not isinstance(matrix, Tensor):
        return np.linalg.solve(matrix, right)
    return solved(right, factored(matrix)[0]) if is_basic() else torch.linalg.solve_ex(matrix, right).result


def nearest_rotation(matrix: Any) -> Any:
    """(B, 3, 3) the rotation nearest to a matrix."""
    return alike(matrix, project(tensor_of(matrix)))


def is_definite(matrix: Any) -> bool:
    """Whether all of some symmetric matrices (B, F, F) are positive definite; false where values cannot be read."""
    if isinstance(matrix, Tensor):
        return holds(torch.linalg.cholesky_ex(matrix.detach()).info.any()) is False
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return True
