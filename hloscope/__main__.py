"""``python -m hloscope``."""

from __future__ import annotations

import sys

from hloscope.cli import main

if __name__ == "__main__":
    sys.exit(main())
