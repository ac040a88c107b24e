"""One thread for all tests: the clouds are small, and threads would only wait for each other.

Open3D's RANSAC before 0.20, too, gives the same answer twice only on one thread.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

torch.set_num_threads(1)
