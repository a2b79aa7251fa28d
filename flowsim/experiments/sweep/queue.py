"""Which block a worker takes next."""

from collections.abc import Iterable, Sequence

from .block import Block


class BlockQueue:
    """The blocks that wait for a worker, those of the first group first, and what has been compiled for others.

    Programs that one worker has compiled are kept on disk, so the next comes by them soon. While they are being
    compiled, another worker does better to go on with other blocks, of a later group if need be.
    """

    def __init__(self, groups: Iterable[Sequence[Block]]):
        self._coming = enumerate(groups)
        self._waiting: list[tuple[int, Block]] = []
        self._latest: dict[int, str] = {}
        self.compiled: set[str] = set()

    def next_for(self, worker: int) -> Block | None:
        """Take the block that suits a worker best, `None` if there is none."""
        others = {structure for one, structure in self._latest.items() if one != worker}
        being_compiled = others - self.compiled
        self._ask_for_more(being_compiled)
        if not self._waiting:
            return None
        mine = self._latest.get(worker)

        def preference(entry: tuple[int, Block]) -> tuple:
            number, block = entry
            structure = block.structure
            return structure in being_compiled, number, structure != mine, structure in others, -block.cost

        best = min(self._waiting, key=preference)
        self._waiting.remove(best)
        self._latest[worker] = best[1].structure
        return best[1]

    def _ask_for_more(self, being_compiled: set[str]) -> None:
        """Ask for groups until there is a block of a structure that is not being compiled, or no group is left."""
        while all(block.structure in being_compiled for _, block in self._waiting):
            number, group = next(self._coming, (0, None))
            if group is None:
                return
            self._waiting += [(number, block) for block in group]

    def put_back(self, block: Block) -> None:
        """Have a block done again, before all others."""
        self._waiting.append((-1, block))
