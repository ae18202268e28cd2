"""Three generations of a ready scheduler from the literature, as ready sets that the real engine can be driven by.

`rescoring` (V0) scores and sorts everything anew whenever a slot is released; `persistent` (V1) keeps an ordered list
per node and the set of nodes with room; `maintained` (V2) edits those lists in other threads. `rounds` holds what they
share, `ordered_list` the list. `cost` measures what their decisions cost, `charged` makes a simulated master pay it,
and `shape` is the program they are compared on. They are baselines, no choices of a user.
"""

from benchmarks.generations.maintained import MaintainedLists
from benchmarks.generations.persistent import PersistentLists
from benchmarks.generations.rescoring import Rescoring

__all__ = ["MaintainedLists", "PersistentLists", "Rescoring"]
