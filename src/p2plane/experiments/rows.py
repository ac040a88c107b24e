"""The rows of the paper's tables: what each is called, what it extends, and how it is made."""

from __future__ import annotations

from dataclasses import dataclass

METHOD, NETWORK = "method", "network"


@dataclass(frozen=True)
class Row:
    """One method of the comparison."""

    name: str
    """Of its results files, and of the config that trains it."""
    label: str
    """As tables and figures have it."""
    kind: str
    """"method", which runs as it is, or "network", which is trained first."""
    method: str = ""
    """Of a method: its name among `p2plane methods`."""
    base: str | None = None
    """Of an extension: the row that it extends."""
    changes: tuple[str, ...] = ()
    """What differs from the config of that name."""
    config: str | None = None
    """The config that trains it, where it is not that of its own name."""


ROWS = (
    Row("icp", "ICP", METHOD, "icp"),
    Row("go-icp", "Go-ICP", METHOD, "go-icp"),
    Row("fgr", "FGR", METHOD, "fgr"),
    Row("ransac-10k", "RANSAC-10K", METHOD, "ransac"),
    Row("dcp-v1", "DCP-v1", NETWORK),
    Row("dcp-v2-point", "DCP-v2", NETWORK),
    Row("prnet-point", "PRNet", NETWORK),
    Row("rpmnet-point", "RPMNet", NETWORK),
    Row("deepgmr", "DeepGMR", NETWORK),
    Row("pointnetlk", "PNLK-R", NETWORK),
    Row("dcp-v2-plane", "DCP-v2 + plane", NETWORK, base="dcp-v2-point"),
    Row("prnet-plane", "PRNet + plane", NETWORK, base="prnet-point"),
    Row("rpmnet-plane", "RPMNet + plane", NETWORK, base="rpmnet-point"),
)
"""The thirteen of tables 1 to 3, in the paper's order."""

PUBLISHED_HEAD = Row(
    "rpmnet-plane-published",
    "RPMNet + plane, as published",
    NETWORK,
    base="rpmnet-point",
    config="rpmnet-plane",
    changes=(
        "model.plane_match=hard",
        "model.head.normals=eigenvector",
        "model.head.gradient=penalty",
        "model.head.point_share=0",
    ),
)
"""The plane head as the paper has it: one partner with one normal, picked at random, and the penalty's gradient."""
EXACT_HEAD = Row(
    "rpmnet-plane-exact",
    "RPMNet + plane, exact gradient",
    NETWORK,
    base="rpmnet-point",
    config="rpmnet-plane",
    changes=("model.plane_match=hard", "model.head.gradient=exact"),
)
"""Between the two: the paper's random partner, with the exact gradient."""
OUR_HEAD = Row(
    "rpmnet-plane-ours",
    "RPMNet + plane, ours",
    NETWORK,
    base="rpmnet-point",
    config="rpmnet-plane",
    changes=("model.plane_match=soft", "model.head.normals=tensor", "model.head.gradient=exact"),
)
"""The plane head as we have it: the mean of the partners, the averaged normal tensor, and the exact gradient."""

PLANES_ALONE = Row(
    "prnet-planes-alone",
    "PRNet + plane, planes alone",
    NETWORK,
    base="prnet-point",
    config="prnet-plane",
    changes=("model.head.point_share=0",),
)
"""PRNet's plane head as the paper has it: without the little point-to-point of ours."""

RRI = Row("deepgmr-rri", "DeepGMR, RRI", NETWORK, config="deepgmr", changes=("model.features=rri",))
"""DeepGMR with the features that no motion changes, its authors' choice; the paper's row here has coordinates."""

TESSERA = Row("tessera", "Tessera (ours)", METHOD, "tessera")
"""The network that comes with the package; it was trained on built-in shapes alone, and has seen none of ModelNet40."""
TESSERA_UNSEEN = Row("tessera-unseen", "Tessera, trained on the other categories", NETWORK, config="tessera-parts")
"""The same network, for a short time, on the categories that the networks of table 2 are trained with."""
REGISTER = Row("register", "register (ours)", METHOD, "register")
"""What `p2plane register` does; its few constants were chosen on training shapes of all categories of ModelNet40."""

WHOLE = Row("tessera-whole", "whole", NETWORK, config="tessera-parts")
PARTS = (
    WHOLE,
    *(
        Row(f"tessera-{name}", label, NETWORK, base=WHOLE.name, config=WHOLE.config, changes=changes)
        for name, label, changes in (
            ("point", "point head instead of planes", ("model.head.head=point",)),
            ("no-attention", "without attention", ("model.blocks=0",)),
            ("coordinates", "features that see coordinates", ("model.coordinates=true",)),
            ("no-supervision", "the match not supervised", ("loss.match_weight=0",)),
        )
    ),
)
"""Tessera, trained for a short time: whole, and with one part left out or changed."""

BY_NAME = {
    row.name: row
    for row in (
        *ROWS,
        PLANES_ALONE,
        RRI,
        PUBLISHED_HEAD,
        EXACT_HEAD,
        OUR_HEAD,
        TESSERA,
        TESSERA_UNSEEN,
        REGISTER,
        *PARTS,
    )
}
EXTENSIONS = tuple(row for row in ROWS if row.base is not None)
"""The three with a plane head, each with its base."""
BASES = tuple(BY_NAME[row.base] for row in EXTENSIONS if row.base is not None)
