"""From features to pairs: which target point, which normal, and how much to trust it."""
