from backtest.agent.streams import Stage, generator


def test_a_draw_depends_on_its_place_only():
    first = generator(3, 77, Stage.REPLAY, 40).random(8)
    generator(3, 77, Stage.REPLAY, 41).random(1000)
    assert (generator(3, 77, Stage.REPLAY, 40).random(8) == first).all()


def test_seed_fold_stage_and_index_separate_streams():
    places = [
        (3, 77, Stage.REPLAY, 40),
        (4, 77, Stage.REPLAY, 40),
        (3, 78, Stage.REPLAY, 40),
        (3, 77, Stage.WEIGHTS, 40),
        (3, 77, Stage.REPLAY, 41),
        (77, 3, Stage.REPLAY, 40),
    ]
    assert len({tuple(generator(*place).random(4)) for place in places}) == len(places)
