from engine_svc.scheduling.deadlines import Deadlines


def test_those_at_or_past_their_deadline_are_taken_out_once():
    deadlines = Deadlines()
    for key, deadline in enumerate([3.0, 1.0, 2.0]):
        deadlines.add(deadline, key, live={0, 1, 2})

    assert deadlines.pop_expired(0.9) == []
    assert deadlines.pop_expired(2.0) == [1, 2]
    assert deadlines.pop_expired(2.0) == []


def test_sweeping_out_the_dead_keeps_the_living():
    deadlines = Deadlines()
    for key in range(1000):
        deadlines.add(float(key), key, live={5, key})

    assert 5 in deadlines.pop_expired(1000.0)
