"""Which block a worker takes next."""

from dataclasses import dataclass

from flowsim.experiments.sweep.queue import BlockQueue


@dataclass(frozen=True)
class Work:
    """What the queue knows of a block."""

    structure: str
    cost: float = 1.0


A1, A2, A3 = (Work("a", cost) for cost in (3.0, 2.0, 1.0))
B1, B2 = Work("b", 2.0), Work("b", 1.0)


def test_a_worker_stays_with_its_structure_and_takes_the_most_costly_block_first():
    queue = BlockQueue([[B2, A3, A1, A2, B1]])
    assert queue.next_for(0) == A1
    queue.compiled.add("a")
    assert [queue.next_for(0) for _ in range(4)] == [A2, A3, B1, B2]
    assert queue.next_for(0) is None


def test_what_another_is_compiling_waits_for_it_and_comes_before_later_groups_after():
    queue = BlockQueue([[A1, A2, A3], [B1, B2]])
    assert queue.next_for(0) == A1
    assert queue.next_for(1) == B1
    queue.compiled |= {"a", "b"}
    assert queue.next_for(1) == A2


def test_rather_than_nothing_a_worker_compiles_what_another_is_compiling():
    queue = BlockQueue([[A1, A2]])
    assert [queue.next_for(worker) for worker in (0, 1, 2)] == [A1, A2, None]


def test_a_group_is_asked_for_when_it_is_needed():
    asked = []

    def groups():
        for group in ([A1], [B1]):
            asked.append(group)
            yield group

    queue = BlockQueue(groups())
    assert (queue.next_for(0), len(asked)) == (A1, 1)
    assert (queue.next_for(1), len(asked)) == (B1, 2)


def test_a_block_that_was_put_back_comes_first():
    queue = BlockQueue([[A1, A2], [B1]])
    first = queue.next_for(0)
    queue.compiled.add("a")
    queue.put_back(first)
    assert queue.next_for(1) == A1
