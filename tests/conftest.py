"""One thread for all tests: the clouds are small, and threads would only wait for each other."""

import torch

torch.set_num_threads(1)
