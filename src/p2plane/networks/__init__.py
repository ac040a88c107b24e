"""Learned registration: one paper for each file."""
