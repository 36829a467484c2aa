import pytest

from hloscope.pipeline.pytree_paths import keys_of, root_of


@pytest.mark.parametrize(
    ("path", "keys"),
    [
        ("x", ("x",)),
        ("state['params']['w']", ("state", "['params']", "['w']")),
        ("state.params[0].kernel", ("state", ".params", "[0]", ".kernel")),
        ("[0]['params']", ("[0]", "['params']")),
        ("", ()),
        ("state['a.b[0]']['it\\'s']", ("state", "['a.b[0]']", "['it\\'s']")),
        ('batch["q"].value', ("batch", '["q"]', ".value")),
        ("state[<flat index 0>]", ("state", "[<flat index 0>]")),
    ],
)
def test_a_path_comes_apart_into_its_keys(path, keys):
    assert keys_of(path) == keys
    assert "".join(keys) == path


def test_the_root_is_the_argument():
    assert root_of("state['params']['w']") == "state"
    assert root_of("parameter 3") == "parameter 3"
