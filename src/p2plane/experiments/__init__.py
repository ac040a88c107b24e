"""The paper's experiments; the settings of every training are in `configs/`."""
