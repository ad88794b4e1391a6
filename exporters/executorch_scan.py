"""The loop that ExecuTorch emits for `scan`, mended where it assumes that every tensor has its largest size."""

from collections.abc import Set
from typing import Any


def resize_while_copying(emitter: Any, start: int, carries: Set[int], stacked: Set[int]) -> None:
    """Rewrite the instructions of a loop that `emitter` has just emitted.

    A carry is filled by `copy.out`, which resizes it, instead of by `copy_`. A stacked output gets the first step's sizes, with one
    step, before that step is written into it; `et_copy_index` lengthens it from there.

    Args:
        start: index of the loop's first instruction in the emitter's chain.
        carries, stacked: ids of the values that the loop carries from step to step, and of those that it stacks.
    """
    from executorch.exir.schema import Bool, EValue, Instruction, Int, JumpFalseCall, KernelCall

    def operator(name: str, overload: str = "") -> int:
        return int(emitter._get_operator(name=name, overload=overload)[0])

    def constant(value: Any) -> int:
        return int(emitter._emit_evalue(EValue(value)).id)

    copy_in_place, copy_at = operator("aten::copy_"), operator("executorch_prim::et_copy_index", "tensor")
    chain = emitter.chain.instructions
    mended: list[Any] = []
    for instruction in chain[start:]:
        call = instruction.instr_args
        index = getattr(call, "op_index", None)
        if index == copy_in_place and call.args[0] in carries:
            carry, source, non_blocking, _ = call.args
            instruction = Instruction(KernelCall(operator("aten::copy", "out"), [source, source, non_blocking, carry, carry]))
        elif index == copy_at and call.args[0] in stacked:
            output, step, position = call.args
            zero, is_first = constant(Int(0)), constant(Bool(False))
            # what follows in the loop only jumps back to where nothing has moved
            behind = emitter.instruction_start_offset + start + len(mended) + 3
            mended += [
                Instruction(KernelCall(operator("executorch_prim::eq", "Scalar"), [position, zero, is_first])),
                Instruction(JumpFalseCall(cond_value_index=is_first, destination_instruction=behind)),
                Instruction(KernelCall(operator("aten::unsqueeze_copy", "out"), [step, zero, output, output])),
            ]
        mended.append(instruction)
    chain[start:] = mended
