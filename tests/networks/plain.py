"""DCP and PRNet written down plainly: all edges in memory, attention and norms spelled out, nothing computed twice.

They run on the weights of our modules, and change their running statistics as these do.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from p2plane.networks.dcp import DCP
from p2plane.networks.dgcnn import DGCNN, DynamicDGCNN
from p2plane.networks.prnet import PRNet
from p2plane.networks.transformer import Transformer


def dcp(model: DCP, source: Tensor, target: Tensor, *normals: Tensor) -> Tensor:
    """(B, 4, 4) pose of the point head; normals of both clouds where the features want them."""
    sides = zip((source, target), normals or (None, None), strict=True)
    of_source, of_target = (embedding(model.emb_nn, *side) for side in sides)
    if model.pointer is None:
        of_source, of_target = 2 * of_source, 2 * of_target
    else:
        of_source, of_target = (
            of_source + transformer(model.pointer, of_source, of_target),
            of_target + transformer(model.pointer, of_target, of_source),
        )
    match = (of_source @ of_target.mT / of_source.shape[-1] ** 0.5).softmax(-1)
    return closest_pose(source, match @ target)


def prnet(model: PRNet, source: Tensor, target: Tensor, T_true: Tensor, rounds: int) -> tuple[Tensor, Tensor]:
    """(B, 4, 4) pose of the point head without noise, and the loss; everything is done again in every round."""
    T, loss = torch.eye(4, dtype=source.dtype).expand(len(source), 4, 4), source.new_zeros(())
    for i in range(rounds):
        of_source, of_target = embedding(model.emb_nn, source), embedding(model.emb_nn, target)
        of_source, of_target = (
            of_source + transformer(model.attention, of_source, of_target),
            of_target + transformer(model.attention, of_target, of_source),
        )
        sides = [_keypoints(*side, model.config.keypoints) for side in ((source, of_source), (target, of_target))]
        (keys, f), (partners, g) = sides
        disparity = (f.mean(1) - g.mean(1)).abs()
        temperature = model.temp_net.nn(disparity).clamp(0.01, 100)
        logits = f @ g.mT / f.shape[-1] ** 0.5
        step = closest_pose(keys, _hard(logits, temperature) @ partners)
        back = closest_pose(partners, _hard(logits.mT, temperature) @ keys)
        T, source = step @ T, source @ step[:, :3, :3].mT + step[:, None, :3, 3]
        cycle = _squares(step[:, :3, :3] @ back[:, :3, :3], torch.eye(3, dtype=source.dtype))
        cycle = cycle + _squares(step[:, :3, 3], -back[:, :3, 3])
        motion = _squares(T[:, :3, :3].mT @ T_true[:, :3, :3], torch.eye(3, dtype=source.dtype))
        motion = motion + _squares(T[:, :3, 3], T_true[:, :3, 3])
        loss = loss + 0.9**i * (motion + 0.1 * disparity.mean() + 0.1 * cycle)
    return T, loss


def embedding(net: DGCNN, points: Tensor, normals: Tensor | None = None) -> Tensor:
    """(B, N, C) features."""
    values = points if normals is None else torch.cat([points, normals], dim=-1)
    dynamic = isinstance(net, DynamicDGCNN)
    rows = _nearest(points, net.neighbors)
    edges, pooled = _pairs(values, rows), []
    for i in range(net.depth):
        edges = _layer(net, i, edges)  # (B, N, k, C)
        pooled.append(edges.max(dim=2).values)
        if dynamic and i + 1 < net.depth:
            edges = _pairs(pooled[-1], _nearest(pooled[-1], net.neighbors))
    return _layer(net, net.depth, torch.cat(pooled, dim=-1))


def transformer(net: Transformer, features: Tensor, other: Tensor) -> Tensor:
    """(B, N, C) features in the light of other ones: decoder(features | encoder(other))."""
    encoder, decoder = net.model.encoder, net.model.decoder
    block = encoder.block
    memory = other
    normed = _norm(block.norm(0), memory)
    memory = memory + _attention(block.self_attn, normed, normed)
    memory = memory + _feed_forward(block.feed_forward, _norm(block.norm(1), memory))
    memory = _norm(encoder.norm, memory)
    block = decoder.block
    normed = _norm(block.norm(0), features)
    features = features + _attention(block.self_attn, normed, normed)
    features = features + _attention(block.src_attn, _norm(block.norm(1), features), memory)
    features = features + _feed_forward(block.feed_forward, _norm(block.norm(2), features))
    return _norm(decoder.norm, features)


def closest_pose(source: Tensor, matched: Tensor) -> Tensor:
    """(B, 4, 4) Procrustes by torch's own singular value decomposition."""
    x, y = source.mean(1, keepdim=True), matched.mean(1, keepdim=True)
    u, _, vt = torch.linalg.svd((source - x).mT @ (matched - y))
    sign = torch.linalg.det(vt.mT @ u.mT).detach()
    ones = torch.ones_like(sign)
    R = vt.mT @ torch.diag_embed(torch.stack([ones, ones, sign], dim=-1)) @ u.mT
    T = torch.eye(4, dtype=source.dtype).repeat(len(source), 1, 1)
    T[:, :3, :3], T[:, :3, 3] = R, (y - x @ R.mT).squeeze(1)
    return T


def _nearest(points: Tensor, neighbors: int) -> Tensor:
    return torch.cdist(points, points).topk(min(neighbors, points.shape[1]), largest=False).indices


def _pairs(values: Tensor, rows: Tensor) -> Tensor:
    """(B, N, k, 2 C) features of the neighbour, then of the point."""
    batch = torch.arange(len(values))[:, None, None]
    neighbors = values[batch, rows]
    return torch.cat([neighbors, values[:, :, None].expand_as(neighbors)], dim=-1)


def _layer(net: DGCNN, i: int, values: Tensor) -> Tensor:
    linear, norm = getattr(net, f"conv{i + 1}"), getattr(net, f"bn{i + 1}")
    mapped = linear(values)
    return F.leaky_relu(norm(mapped.flatten(0, -2)).view_as(mapped), net.slope)


def _norm(norm: torch.nn.Module, values: Tensor) -> Tensor:
    centered = values - values.mean(-1, keepdim=True)
    return norm.a_2 * centered / (values.std(-1, keepdim=True) + 1e-6) + norm.b_2


def _attention(net: torch.nn.Module, queries: Tensor, keys: Tensor) -> Tensor:
    q, k, v = (
        linear(values).unflatten(-1, (net.heads, -1)).transpose(1, 2)
        for linear, values in zip(net.linears, (queries, keys, keys), strict=False)
    )
    scores = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
    return net.linears[3]((scores @ v).transpose(1, 2).flatten(2))


def _feed_forward(net: torch.nn.Module, values: Tensor) -> Tensor:
    return net.w_2(F.leaky_relu(net.w_1(values), net.slope))


def _keypoints(points: Tensor, features: Tensor, count: int) -> tuple[Tensor, Tensor]:
    rows = features.norm(dim=-1).topk(min(count, points.shape[1])).indices
    batch = torch.arange(len(points))[:, None]
    return points[batch, rows], features[batch, rows]


def _hard(logits: Tensor, temperature: Tensor) -> Tensor:
    soft = (logits / temperature[..., None]).softmax(-1)
    return F.one_hot(soft.argmax(-1), soft.shape[-1]).to(soft) + soft - soft.detach()


def _squares(a: Tensor, b: Tensor) -> Tensor:
    return (a - b).square().mean()
