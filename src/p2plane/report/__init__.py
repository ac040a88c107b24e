"""A registration to look at: a page for the browser, and pictures for papers."""

from p2plane.report.drawing import draw_pair
from p2plane.report.page import write_page
from p2plane.report.picture import write_picture

__all__ = ["draw_pair", "write_page", "write_picture"]
