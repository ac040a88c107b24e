"""The paper's experiments: what has to be run for them, and the tables and figures that are made of the results."""
