"""From matched pairs to a pose, differentiably."""
