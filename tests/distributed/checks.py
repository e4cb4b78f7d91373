"""What a row of a table must have found, in each of the processes."""


def check_in_the_graph(found):
    for one in found:
        assert not one["wrong"], one["wrong"]
        assert one["graphs"] and not one["graph_breaks"] and not one["fallbacks"], one


def check_behind_a_break(found):
    for one in found:
        assert not one["wrong"], one["wrong"]
        assert one["graph_breaks"] or one["fallbacks"], one


def check_breaks_around_a_model(found):
    for one in found:
        assert not one["wrong"], one["wrong"]
        assert (one["graphs"], one["graph_breaks"], one["fallbacks"]) == (1, 2, 0), one
