"""Upper bounds for dynamic axes: ExecuTorch plans all memory ahead, for the largest size of everything."""

from torch.export import ExportedProgram

# how far beyond the sample an axis without a bound of its own may grow
GROWTH = 4


def bound_axes(program: ExportedProgram, max_size: int | None = None) -> dict[str, tuple[int, int]]:
    """Give each symbol of `program` that has no upper bound one, in place; the range of every symbol.

    A symbol that stands for a size in the data (`u0`, the rows of a `nonzero`) has no sample: it is left alone, unless `max_size`
    says how large it can get.

    Args:
        max_size: the bound; None takes `GROWTH` times the sample's size.
    """
    from torch.utils._sympy.numbers import int_oo
    from torch.utils._sympy.value_ranges import ValueRanges

    shape_env = _shape_env(program)
    if shape_env is None:
        return {}
    ranges = {**program._range_constraints}
    for symbol, known in list(shape_env.var_to_range.items()):
        if known.upper is not int_oo and known.upper < _UNBOUNDED:
            continue
        sample = shape_env.backed_var_to_val.get(symbol)
        if sample is None and max_size is None:
            continue
        low = int(known.lower)
        high = max_size if max_size is not None else GROWTH * int(sample)
        if sample is not None:
            high = max(high, int(sample))
        bounded = ValueRanges(low, max(high, low))
        shape_env.var_to_range[symbol] = bounded
        if symbol in ranges:
            ranges[symbol] = bounded
    program._range_constraints.update(ranges)
    return {str(symbol): (int(known.lower), int(known.upper)) for symbol, known in ranges.items() if known.upper is not int_oo}


# torch writes "no bound" for sizes as one less than the largest int64 in places
_UNBOUNDED = 2**62


def _shape_env(program: ExportedProgram):  # type: ignore[no-untyped-def]  # torch's ShapeEnv, which has no public name
    """The shape environment of the program's fake tensors; None for a program without dynamic axes."""
    import torch

    for node in program.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and getattr(value, "fake_mode", None) is not None:
            return value.fake_mode.shape_env
    return None
