"""`python -m hff` is the command `hff`."""

import sys

from hff.cli import main

sys.exit(main())
