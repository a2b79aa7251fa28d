"""Which block a worker takes next."""

from collections import namedtuple
from types import SimpleNamespace

from flowsim.sweeps.workers import BlockQueue

Work = namedtuple("Work", "recipe cost")
A, B = SimpleNamespace(structure="a"), SimpleNamespace(structure="b")
A1, A2, A3 = (Work(A, cost) for cost in (3.0, 2.0, 1.0))
B1, B2 = Work(B, 2.0), Work(B, 1.0)


def test_a_worker_stays_with_its_structure_and_takes_the_most_costly_block_first():
    queue = BlockQueue([[B2, A3, A1, A2, B1]])
    assert [queue.next_for(0) for _ in range(6)] == [A1, A2, A3, B1, B2, None]


def test_a_worker_leaves_a_structure_to_another_while_there_is_anything_else():
    queue = BlockQueue([[A1, A2, A3], [B1, B2]])
    assert queue.next_for(0) == A1
    assert [queue.next_for(1) for _ in range(3)] == [B1, B2, A2]
    assert queue.next_for(0) == A3


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
    assert queue.next_for(0) == A1
    queue.put_back(A3)
    assert queue.next_for(0) == A3
