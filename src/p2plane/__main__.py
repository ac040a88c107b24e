"""`python -m p2plane`, for those who start Python themselves: `torchrun -m p2plane train ...`."""

import sys

from p2plane.cli import main

if __name__ == "__main__":
    sys.exit(main())
