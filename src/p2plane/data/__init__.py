"""Clouds in, pairs out: files, data sets, built-in shapes, and how a pair is made of them."""
