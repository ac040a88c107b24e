"""`p2plane methods`: what can be asked to register clouds."""

from __future__ import annotations


def methods() -> None:
    """List the methods, what they need, and whether they can be used here."""
    from rich.table import Table
    from rich.text import Text

    from p2plane.cli.tables import console
    from p2plane.methods import METHODS, WEIGHTS, available
    from p2plane.networks.registry import MODELS
    from p2plane.networks.weights import shipped_models

    table = Table(box=None, pad_edge=False)
    for heading in ("method", "needs", "here"):
        table.add_column(heading, no_wrap=True)
    table.add_column("what it does")
    reasons = available()
    for name, method in METHODS.items():
        here = Text("yes", "green") if reasons[name] is None else Text("no", "yellow")
        needs = Text(f"p2plane[{method.extra}]" if method.extra else "nothing")
        table.add_row(name, needs, here, method.description)
    for name in shipped_models():
        table.add_row(name, Text("nothing"), Text("yes", "green"), "a network whose weights come with p2plane")
    table.add_row(f"FILE{WEIGHTS}", "the file", Text("yes", "green"), f"a network: {', '.join(MODELS)}")
    out = console()
    out.print(table)
    for reason in dict.fromkeys(reason for reason in reasons.values() if reason is not None):
        out.print(Text(f"! {reason}", "yellow"))
