"""Two scans in, one pose out: clean, thin, search, refine, check, and say how far the answer can be trusted."""
