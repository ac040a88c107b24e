"""Pure functions on tensors: rotations, rigid motions, neighbourhoods."""
