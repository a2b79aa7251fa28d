"""Which block a worker takes next."""

from collections.abc import Iterable, Sequence

from .work import Block


class BlockQueue:
    """The blocks that wait for a worker, those of the first group first.

    Every process compiles its own programs, one set for each structure. So a worker leaves a structure that another
    one is at alone while there is anything else to do, in a later group if need be.
    """

    def __init__(self, groups: Iterable[Sequence[Block]]):
        self._coming = enumerate(groups)
        self._waiting: list[tuple[int, Block]] = []
        self._latest: dict[int, str] = {}

    def next_for(self, worker: int) -> Block | None:
        """Take the block that suits a worker best, the most costly of them; `None` if there is none."""
        others = {structure for one, structure in self._latest.items() if one != worker}
        self._ask_for_more(others)
        if not self._waiting:
            return None
        mine = self._latest.get(worker)

        def preference(entry: tuple[int, Block]) -> tuple:
            number, block = entry
            return block.structure in others, number, block.structure != mine, -block.cost

        best = min(self._waiting, key=preference)
        self._waiting.remove(best)
        self._latest[worker] = best[1].structure
        return best[1]

    def _ask_for_more(self, others: set[str]) -> None:
        """Ask for groups until there is a block of a structure that no other worker is at, or no group is left."""
        while all(block.structure in others for _, block in self._waiting):
            number, group = next(self._coming, (0, None))
            if group is None:
                return
            self._waiting += [(number, block) for block in group]

    def put_back(self, block: Block) -> None:
        """Have a block done again, before all others of its kind."""
        self._waiting.append((-1, block))
