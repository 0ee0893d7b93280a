"""The public surface: what `from cube3d import ...` offers."""

import cube3d


def test_names_are_sorted_and_all_there() -> None:
    assert cube3d.__all__ == sorted(cube3d.__all__)
    for name in cube3d.__all__:
        assert getattr(cube3d, name) is not None


def test_every_error_is_a_cube_error() -> None:
    from cube3d import errors

    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and kind.__module__ == errors.__name__]
    assert len(kinds) > 5 and all(issubclass(kind, cube3d.CubeError) for kind in kinds)
