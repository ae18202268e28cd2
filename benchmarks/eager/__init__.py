"""Programs whose tasks hand over outputs early, against the same programs with outputs at the end of each task.

The tasks themselves are those of the example programs.
"""

import sys
from pathlib import Path

#: where the example programs are, which are no package
EXAMPLES = str(Path(__file__).parents[2] / "examples")

if EXAMPLES not in sys.path:
    sys.path.insert(0, EXAMPLES)
